-- The number of the block is added to the name.
SAVEPOINT aftercommit_inbox
