-- Some handlers of the row are done with it, and its holder goes on. Nothing of a row unless its lease still stands.
UPDATE {held_rows}
SET done_handlers = held.done
{if_held_returning}
