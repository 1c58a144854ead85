-- The number of the block is added to the name.
SAVE TRANSACTION aftercommit_inbox
