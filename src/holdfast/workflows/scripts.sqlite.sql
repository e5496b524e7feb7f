-- Workflows: which jobs run, are cancelled or are held after others have ended.
-- The same names in the same order as in scripts.postgres.sql. How they are written: engine/script.py.

-- name: insert_workflow
-- Add a workflow; repeated, it changes nothing.
INSERT INTO holdfast_workflows (id, name, created_at)
VALUES (:id, :name, {now})
ON CONFLICT DO NOTHING;

-- name: insert_edges
-- Add edges: which job waits for which, and what happens to the waiting job if the other one fails.
INSERT INTO holdfast_edges (child_id, parent_id, place, policy)
VALUES (:child_id, :parent_id, :place, :policy)
ON CONFLICT DO NOTHING;

-- name: lock_workflows
-- Nothing to lock: there is one writer at a time.
SELECT id
  FROM holdfast_workflows
 WHERE id IN (SELECT value FROM json_each(:workflows))
 ORDER BY id;

-- name: changed_workflows
-- Workflows with jobs that have ended, were added or were retried, and were not followed up.
WITH RECURSIVE seen (id, number) AS (
    SELECT (SELECT workflow_id FROM holdfast_jobs INDEXED BY holdfast_jobs_unseen
             WHERE workflow_id IS NOT NULL AND {unseen}
             ORDER BY workflow_id LIMIT 1), 1
     UNION ALL
    SELECT (SELECT workflow_id FROM holdfast_jobs INDEXED BY holdfast_jobs_unseen
             WHERE workflow_id > seen.id AND workflow_id IS NOT NULL AND {unseen}
             ORDER BY workflow_id LIMIT 1), seen.number + 1
      FROM seen
     WHERE seen.id IS NOT NULL
       AND seen.number < :limit
)
SELECT id
  FROM seen
 WHERE id IS NOT NULL;

-- name: changed_jobs
-- The jobs of these workflows that have ended, were added or were retried, and were not followed up.
SELECT jobs.id, jobs.workflow_id, jobs.status, jobs.node
  FROM json_each(:workflows) AS wanted
 CROSS JOIN holdfast_jobs AS jobs INDEXED BY holdfast_jobs_unseen
 WHERE jobs.workflow_id = wanted.value AND jobs.workflow_id IS NOT NULL AND {unseen}
 LIMIT :limit;

-- name: mark_followed_up
-- Record that these jobs were followed up.
UPDATE holdfast_jobs
   SET seen = :status
 WHERE id = :id
   AND status = :status;

-- name: record_outcomes
-- Record the outcome of jobs that have ended in the edges of the jobs that wait for them, unless a failure holds those.
UPDATE holdfast_edges
   SET outcome = COALESCE((SELECT status FROM holdfast_jobs WHERE id = parent_id), 'gone')
 WHERE parent_id IN (SELECT value FROM json_each(:ids))                                                 --? ended
 WHERE child_id IN (SELECT value FROM json_each(:ids))                                                  --? added
   AND outcome IS NULL
   AND EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = parent_id)                                        --? ended
   AND COALESCE((SELECT status FROM holdfast_jobs WHERE id = parent_id), 'cancelled') IN ({finished})
   AND (policy <> 'hold' OR (SELECT status FROM holdfast_jobs WHERE id = parent_id) = 'completed')
RETURNING child_id, parent_id, policy, outcome;

-- name: free
-- Release jobs that wait for no other job any more.
UPDATE holdfast_jobs
   SET status = CASE WHEN run_at > {now} THEN 'scheduled' ELSE 'pending' END,
       run_at = MAX(run_at, {now}),
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ({free})
   AND limit_key IS NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_edges INDEXED BY holdfast_edges_open WHERE child_id = holdfast_jobs.id AND outcome IS NULL)
RETURNING id, queue;

-- name: drop
-- Cancel jobs that waited for a job that failed or was cancelled.
UPDATE holdfast_jobs
   SET status = 'cancelled',
       error = :error,
       completed_at = {now},
       keep_until = {now} + :keep,
       updated_at = {now}
 WHERE id = :id
   AND status IN ({drop})
   AND limit_key IS NULL;

-- name: workflow_states
-- Whether workflows have an unfinished, a failed and a cancelled job. Callbacks (@) do not count.
SELECT id, status,
       EXISTS (SELECT 1 FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status IN ({unfinished}) AND substr(node, 1, 1) <> '@'),
       EXISTS (SELECT 1 FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status = 'failed' AND substr(node, 1, 1) <> '@'),
       EXISTS (SELECT 1 FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status = 'cancelled' AND substr(node, 1, 1) <> '@')
  FROM holdfast_workflows AS workflows
 WHERE id IN (SELECT value FROM json_each(:workflows));

-- name: callbacks
-- Callbacks that have not been released.
SELECT jobs.id, jobs.workflow_id, jobs.node
  FROM json_each(:workflows) AS wanted
 CROSS JOIN holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
 WHERE jobs.workflow_id = wanted.value AND jobs.workflow_id IS NOT NULL AND jobs.status = 'blocked'
   AND jobs.limit_key IS NULL AND substr(jobs.node, 1, 1) = '@';

-- name: mark_workflow
-- Record the status of a workflow.
UPDATE holdfast_workflows
   SET status = :status,
       finished_at = CASE WHEN :finished THEN COALESCE(finished_at, {now}) END
 WHERE id = :id;

-- name: reopen
-- Run failed and cancelled jobs of a workflow again: now, or after the jobs that they wait for.
UPDATE holdfast_jobs
   SET status = CASE WHEN substr(node, 1, 1) = '@' OR EXISTS (SELECT 1 FROM holdfast_edges WHERE child_id = holdfast_jobs.id) THEN 'blocked' ELSE 'pending' END,
       attempts = 0, crashes = 0, deaths = 0, suspect = 0, verdict = NULL, unreadable_since = NULL, error = NULL, cancel_requested = 0,
       started_at = NULL, completed_at = NULL, keep_until = NULL, worker_id = NULL, progress = NULL, message = NULL,
       limit_key = NULL, rerun_at = NULL, seen = NULL, updated_at = {now}
 WHERE id IN (SELECT id FROM holdfast_jobs INDEXED BY holdfast_jobs_workflow
               WHERE workflow_id = :workflow AND workflow_id IS NOT NULL AND status IN ({reopen}))
   AND status IN ({reopen})
RETURNING id, queue, status;

-- name: clear_outcomes
-- Clear the outcomes of these jobs in the edges: other jobs wait for them again.
UPDATE holdfast_edges
   SET outcome = NULL
 WHERE parent_id IN (SELECT value FROM json_each(:ids));

-- name: release_node
-- Let a held job run although a job that it waits for has failed.
UPDATE holdfast_edges
   SET outcome = 'released'
 WHERE child_id = :id
   AND outcome IS NULL
   AND COALESCE((SELECT status FROM holdfast_jobs WHERE id = parent_id), 'failed') IN ('failed', 'cancelled')
RETURNING parent_id;
UPDATE holdfast_jobs
   SET seen = NULL
 WHERE id = :id;

-- name: parents
-- The jobs that a job waits for or waited for, and their outcomes, in the order in which they were named.
SELECT edges.parent_id, edges.policy, edges.outcome, jobs.node, jobs.type, jobs.status,
       results.result                                                                                   --? results
       NULL                                                                                             --? plain
  FROM holdfast_edges AS edges
  LEFT JOIN holdfast_jobs AS jobs ON jobs.id = edges.parent_id
  LEFT JOIN holdfast_results AS results ON results.job_id = edges.parent_id                             --? results
 WHERE edges.child_id = :id
 ORDER BY edges.place;

-- name: workflows
-- Workflows, the newest first.
SELECT id, name, status, created_at, finished_at
  FROM holdfast_workflows
 WHERE id < :before                                                                                     --? page
 WHERE id IN (SELECT value FROM json_each(:workflows))                                                  --? some
 ORDER BY id DESC
 LIMIT :limit;

-- name: workflow_counts
-- How many jobs of some workflows have which status. Callbacks do not count.
SELECT few.workflow_id, few.status, COUNT(*)
  FROM (SELECT jobs.workflow_id, jobs.status, jobs.node
          FROM json_each(:workflows) AS wanted
         CROSS JOIN holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
         WHERE jobs.workflow_id = wanted.value AND jobs.workflow_id IS NOT NULL
         LIMIT :cap) AS few
 WHERE substr(few.node, 1, 1) <> '@'
 GROUP BY few.workflow_id, few.status;

-- name: members
-- The jobs of a workflow, some at a time.
SELECT {columns}
  FROM holdfast_jobs INDEXED BY holdfast_jobs_workflow
 WHERE workflow_id = :workflow
   AND workflow_id IS NOT NULL
   AND (status, id) > (:status, :after)
 ORDER BY workflow_id, status, id
 LIMIT :limit;

-- name: edges
-- Which job waits for which, among some jobs.
SELECT child_id, parent_id, policy, outcome
  FROM holdfast_edges
 WHERE child_id IN (SELECT value FROM json_each(:ids))
 ORDER BY child_id, place;

-- name: orphans
-- Jobs that wait for a job that was deleted: a bounded search.
SELECT MAX(child_id), COUNT(*),
       json_group_array(child_id) FILTER (WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = parent_id))
  FROM (SELECT child_id, parent_id
          FROM holdfast_edges INDEXED BY holdfast_edges_open
         WHERE outcome IS NULL
           AND child_id > :after
         ORDER BY child_id
         LIMIT :limit);

-- name: follow_up_again
-- Follow up these jobs once more.
UPDATE holdfast_jobs
   SET seen = NULL
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status = 'blocked';

-- name: abandoned
-- Running workflows without a job that could still end: a bounded search.
SELECT MAX(id), COUNT(*),
       json_group_array(id) FILTER (WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_workflow
                                                       WHERE workflow_id = look.id AND workflow_id IS NOT NULL
                                                         AND jobs.status IN ({unfinished}) AND substr(node, 1, 1) <> '@'))
  FROM (SELECT id
          FROM holdfast_workflows INDEXED BY holdfast_workflows_open
         WHERE finished_at IS NULL
           AND id > :after
         ORDER BY id
         LIMIT :limit) AS look;

-- name: prune_workflows
-- Delete workflows that ended some time ago and have no job left.
DELETE FROM holdfast_workflows
 WHERE id IN (SELECT id
                FROM holdfast_workflows AS workflows INDEXED BY holdfast_workflows_finished
               WHERE finished_at < {now} - :keep
                 AND NOT EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_workflow
                                  WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL)
               ORDER BY finished_at
               LIMIT :limit)
RETURNING id;
