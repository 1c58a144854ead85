-- One more delivery begins that may kill its process. Changes nothing unless the lease still stands.
UPDATE {held_rows}
SET abandoned = abandoned + 1
{if_held}
