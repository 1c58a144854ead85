-- One process at a time makes or upgrades the tables; the end of its transaction lets the next one in.
DECLARE @outcome int;
EXECUTE @outcome = sp_getapplock @Resource = :name, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
  @LockTimeout = 60000;
IF @outcome < 0 THROW 51222, 'Another process has been making the tables of this outbox for a minute.', 1
