-- What workers are asked. The same names, in the same order, as ../postgres/workers.sql; written as statements.sql says.

-- name: ask_stacks
-- Somebody wants to see where the runs of a worker stand; its next beat tells it so.
UPDATE holdfast_workers
   SET asked_at = {now}
 WHERE id = :id
   AND died_at IS NULL
RETURNING id;

-- name: tell_stacks
-- Where they stand.
UPDATE holdfast_workers
   SET stacks_at = {now},
       stacks = :text
 WHERE id = :id;

-- name: stacks
-- What a worker said of its runs, and when it was asked.
SELECT asked_at, stacks_at, stacks
  FROM holdfast_workers
 WHERE id = :id;
