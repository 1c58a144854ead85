-- Failed and counted; due again, or DEAD at the limit of the row's own count. Changes nothing unless the lease still stands.
UPDATE {held_rows}
SET status = CASE WHEN attempts + 1 >= held.counted THEN 3 ELSE 2 END,
    done_at = CASE WHEN attempts + 1 >= held.counted THEN {now} END,
    attempts = attempts + 1, available_at = {now_plus:held.delay}, last_error = held.error,
    abandoned = 0, done_handlers = coalesce(held.done, done_handlers), {free}
{if_held_returning}
