-- What was done since stays part of the transaction.
RELEASE SAVEPOINT aftercommit_inbox
