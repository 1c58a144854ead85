-- Let the next one look.
SELECT RELEASE_LOCK(SHA2(CONCAT(IF(LOCATE('.', :name) > 0, '', DATABASE()), :name), 224))
