-- Let the next one look.
SELECT RELEASE_LOCK(SHA1(CONCAT(IF(LOCATE('.', :name) > 0, '', DATABASE()), :name)))
