-- One process at a time makes tables; 0 is for who waited in vain. The lock is the session's, and its name may be no longer
-- than 64 characters.
SELECT COALESCE(GET_LOCK(SHA2(CONCAT(IF(LOCATE('.', :name) > 0, '', DATABASE()), :name), 224), 60), 0)
