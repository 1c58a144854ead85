-- No more attempts. Changes nothing of a row unless its lease still stands.
UPDATE {held_rows}
SET status = 3, attempts = attempts + held.counted, done_at = {now}, last_error = held.error,
    abandoned = 0, done_handlers = coalesce(held.done, done_handlers), {free}
{if_held_returning}
