-- Delete finished jobs.
-- A finished job is kept until `keep_until`. A pruner that runs a hook on it, or archives it, first leases it: its time is
-- put off and its `prunings` counted, and only the holder of that number may delete it; unless it has run again meanwhile.
-- What belongs to a workflow stays until that has ended: others may wait for it.
-- The same statements, in the same order, as in retention.postgres.sql. How they are written: engine/statements.py.

-- name: prune
-- Delete finished jobs whose time is over, the oldest first: a bounded look at one status. Not those with a hook.
DELETE FROM holdfast_jobs
 WHERE id IN (SELECT id
                FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                       WHERE status = :status
                         AND status <> 'running'
                         AND id > :after
                         AND id < :before
                       ORDER BY id
                       LIMIT :scan) AS look
               WHERE type NOT IN (SELECT type FROM holdfast_hooks)
                 AND keep_until <= {now}                                                        --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})     --? old
                 AND NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = look.workflow_id AND finished_at IS NULL)
               LIMIT :limit)
RETURNING id;

-- name: prune_edge
-- How far that look goes: the last id, and how many rows it sees; and, if asked, how many are to go, and how many of
-- those have a hook that the caller does not know.
SELECT MAX(id), COUNT(*)
       , SUM(due)                                                                                         --? counted
       , SUM(due AND type IN (SELECT type FROM holdfast_hooks) AND type NOT IN (SELECT value FROM json_each(:types))) --? counted
  FROM (SELECT id
               , type                                                                                     --? counted
               , NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = jobs.workflow_id AND finished_at IS NULL) --? counted
                 AND keep_until <= {now}                                                                  --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})               --? old
                 AS due                                                                                   --? counted
          FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_listed
         WHERE status = :status
           AND status <> 'running'
           AND id > :after
           AND id < :before
         ORDER BY id
         LIMIT :scan);

-- name: lease
-- Take some of those that are to go, for a while: of types with a hook that the caller knows; or, to be archived, also of
-- all that have none.
UPDATE holdfast_jobs
   SET keep_until = {now} + :lease,
       prunings = prunings + 1
 WHERE id IN (SELECT id
                FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                       WHERE status = :status
                         AND status <> 'running'
                         AND id > :after
                         AND id < :before
                       ORDER BY id
                       LIMIT :scan) AS look
               WHERE (type IN (SELECT value FROM json_each(:types))
                      OR type NOT IN (SELECT type FROM holdfast_hooks)                          --? archived
                     )
                 AND keep_until <= {now}                                                        --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})     --? old
                 AND NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = look.workflow_id AND finished_at IS NULL)
               LIMIT :limit)
RETURNING id, prunings, claim_no;

-- name: prune_leased
-- Delete jobs that were leased, each only while its lease holds.
DELETE FROM holdfast_jobs
 WHERE id = :id
   AND prunings = :prunings
   AND claim_no = :claim_no
   AND status IN ({prune})
RETURNING id;

-- name: put_off
-- Keep jobs that could not be let go, and say why; each only while its lease holds.
UPDATE holdfast_jobs
   SET keep_until = {now} + :delay,
       prune_error = :error
 WHERE id = :id
   AND prunings = :prunings
   AND claim_no = :claim_no
   AND status IN ({prune});

-- name: declare_hooks
-- Tasks whose jobs may go only after their hook was called.
INSERT INTO holdfast_hooks (type)
VALUES (:type)
ON CONFLICT DO NOTHING;

-- name: forget_hooks
-- Tasks that have none any more.
DELETE FROM holdfast_hooks
 WHERE type IN (SELECT value FROM json_each(:types));

-- name: hooks
-- The tasks with a hook.
SELECT type
  FROM holdfast_hooks
 ORDER BY type;
