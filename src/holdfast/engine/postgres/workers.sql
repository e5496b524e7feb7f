-- What workers are asked. The same names, in the same order, as ../sqlite/workers.sql; written as statements.sql says.

-- name: ask_stacks
-- Somebody wants to see where the runs of a worker stand; its next beat tells it so.
UPDATE {schema}.workers
   SET asked_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL
RETURNING id;

-- name: tell_stacks
-- Where they stand.
UPDATE {schema}.workers
   SET stacks_at = {now},
       stacks = :text::text
 WHERE id = :id::text;

-- name: stacks
-- What a worker said of its runs, and when it was asked.
SELECT asked_at, stacks_at, stacks
  FROM {schema}.workers
 WHERE id = :id::text;
