-- Not now and not counted; due again after a delay. Changes nothing of a row unless its lease still stands.
UPDATE {held_rows}
SET status = 2, available_at = {now_plus:held.delay},
    abandoned = 0, done_handlers = coalesce(held.done, done_handlers), {free}
{if_held_returning}
