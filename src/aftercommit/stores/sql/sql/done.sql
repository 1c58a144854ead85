-- Delivered. Changes nothing of a row unless its lease still stands.
UPDATE {held_rows}
SET status = 1, done_at = {now}, last_error = NULL, abandoned = 0, {free}
{if_held_returning}
