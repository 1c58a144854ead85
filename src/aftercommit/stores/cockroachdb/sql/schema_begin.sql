-- Tables are changed in no transaction that is READ COMMITTED. It has to be said before anything else.
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
