-- The driver begins before an INSERT, and not before a savepoint: that would be the transaction, and its end a commit.
BEGIN IMMEDIATE
