"""The inbox of a consumer: what a broker delivers again changes nothing again.

`Inbox` and `AsyncInbox` are imported from `aftercommit`; `aftercommit.inbox.messages` and `aftercommit.inbox.webhooks`
read what comes from brokers and from other services.
"""
