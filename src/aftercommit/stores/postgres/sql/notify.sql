-- Say something to whoever listens. Nobody waits for the disk: a message that a crash takes with it is not missed.
SELECT pg_notify(:channel, :message), set_config('synchronous_commit', 'off', true)
