-- One process at a time makes tables. The lock is the session's, and its name may be no longer than 64 characters.
SELECT GET_LOCK(SHA2(CONCAT(IF(LOCATE('.', :name) > 0, '', DATABASE()), :name), 224), 60)
