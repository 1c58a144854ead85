-- One more delivery begins that may kill its process, or one less is to blame. Nothing unless the lease still stands.
UPDATE {held_rows}
SET abandoned = abandoned + held.counted
{if_held}
