"""Events in SQL Server 2016 and later, and in Azure SQL, over pyodbc.

These statements have been parsed as T-SQL and the executors have been run over a stand-in for the driver, but nothing
of this has met a server yet. To change that, set AFTERCOMMIT_TEST_SQLSERVER_URL and run the tests: the whole
conformance suite is bound to it. docs/stores-sqlserver.md says more.
"""
