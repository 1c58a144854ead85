-- There is no word for it: a savepoint that nobody goes back to does nothing. Only the transaction has to stand.
IF @@TRANCOUNT = 0 THROW 51223, 'The transaction was ended inside a block of the inbox.', 1;
