-- Workflows: which jobs run, are cancelled or are held after others have ended.
-- The same names in the same order as in scripts.sqlite.sql. How they are written: engine/script.py.

-- name: insert_workflow
-- Add a workflow; repeated, it changes nothing.
INSERT INTO {schema}.workflows (id, name, created_at)
VALUES (:id::text::uuid, :name::text, {now})
ON CONFLICT DO NOTHING;

-- name: insert_edges
-- Add edges: which job waits for which, and what happens to the waiting job if the other one fails.
INSERT INTO {schema}.edges (child_id, parent_id, place, policy)
SELECT child_id, parent_id, place, policy
  FROM json_to_recordset(:batch::text::json) AS new (child_id uuid, parent_id uuid, place int, policy text)
ON CONFLICT DO NOTHING;

-- name: lock_workflows
-- Lock workflows for this transaction: the next one to lock them sees what this one has written.
SELECT id::text
  FROM {schema}.workflows
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:workflows::text::json)::uuid))
 ORDER BY workflows.id
   FOR UPDATE;

-- name: changed_workflows
-- Workflows with jobs that have ended, were added or were retried, and were not followed up.
WITH RECURSIVE seen (id, number) AS (
    SELECT (SELECT workflow_id FROM {schema}.jobs
             WHERE workflow_id IS NOT NULL AND {unseen}
             ORDER BY workflow_id LIMIT 1), 1
     UNION ALL
    SELECT (SELECT workflow_id FROM {schema}.jobs
             WHERE workflow_id > seen.id AND workflow_id IS NOT NULL AND {unseen}
             ORDER BY workflow_id LIMIT 1), seen.number + 1
      FROM seen
     WHERE seen.id IS NOT NULL
       AND seen.number < :limit::int
)
SELECT id::text
  FROM seen
 WHERE id IS NOT NULL;

-- name: changed_jobs
-- The jobs of these workflows that have ended, were added or were retried, and were not followed up.
SELECT jobs.id::text, jobs.workflow_id::text, jobs.status, jobs.node
  FROM json_array_elements_text(:workflows::text::json) AS wanted (id)
 CROSS JOIN LATERAL (SELECT id, workflow_id, status, node
                       FROM {schema}.jobs
                      WHERE workflow_id = wanted.id::uuid AND workflow_id IS NOT NULL AND {unseen}
                      ORDER BY workflow_id, id
                      LIMIT :limit::int) AS jobs
 LIMIT :limit::int;

-- name: mark_followed_up
-- Record that these jobs were followed up.
UPDATE {schema}.jobs
   SET seen = new.status
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, status text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND jobs.status = new.status;

-- name: record_outcomes
-- Record the outcome of jobs that have ended in the edges of the jobs that wait for them, unless a failure holds those.
-- (Not "IS NULL", for which the planner could choose an index of all open edges.)
UPDATE {schema}.edges
   SET outcome = COALESCE((SELECT status FROM {schema}.jobs WHERE id = parent_id), 'gone')
 WHERE parent_id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))                  --? ended
 WHERE child_id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))                   --? added
   AND COALESCE(outcome, '') = ''
   AND EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = parent_id)                                        --? ended
   AND COALESCE((SELECT status FROM {schema}.jobs WHERE id = parent_id), 'cancelled') IN ({finished})
   AND (policy <> 'hold' OR (SELECT status FROM {schema}.jobs WHERE id = parent_id) = 'completed')
RETURNING child_id::text, parent_id::text, policy, outcome;

-- name: free
-- Release jobs that wait for no other job any more.
UPDATE {schema}.jobs
   SET status = CASE WHEN run_at > {now} THEN 'scheduled' ELSE 'pending' END,
       run_at = GREATEST(run_at, {now}),
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
   AND COALESCE(status, '') IN ({free})
   AND limit_key IS NULL
   AND NOT EXISTS (SELECT 1 FROM {schema}.edges WHERE child_id = jobs.id AND outcome IS NULL)
RETURNING id::text, queue;

-- name: drop
-- Cancel jobs that waited for a job that failed or was cancelled.
UPDATE {schema}.jobs
   SET status = 'cancelled',
       error = new.error,
       completed_at = {now},
       keep_until = {now} + new.keep * interval '1 microsecond',
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, error text, keep bigint)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND COALESCE(jobs.status, '') IN ({drop})
   AND jobs.limit_key IS NULL
RETURNING jobs.id::text;

-- name: workflow_states
-- Whether workflows have an unfinished, a failed and a cancelled job. Callbacks (@) do not count.
SELECT id::text, status,
       EXISTS (SELECT 1 FROM {schema}.jobs
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status IN ({unfinished}) AND left(node, 1) <> '@'
                ORDER BY workflow_id, jobs.status, jobs.id LIMIT 1 OFFSET 0),
       EXISTS (SELECT 1 FROM {schema}.jobs
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status = 'failed' AND left(node, 1) <> '@'
                ORDER BY workflow_id, jobs.status, jobs.id LIMIT 1 OFFSET 0),
       EXISTS (SELECT 1 FROM {schema}.jobs
                WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL AND jobs.status = 'cancelled' AND left(node, 1) <> '@'
                ORDER BY workflow_id, jobs.status, jobs.id LIMIT 1 OFFSET 0)
  FROM {schema}.workflows
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:workflows::text::json)::uuid));

-- name: callbacks
-- Callbacks that have not been released.
SELECT jobs.id::text, jobs.workflow_id::text, jobs.node
  FROM json_array_elements_text(:workflows::text::json) AS wanted (id)
 CROSS JOIN LATERAL (SELECT id, workflow_id, node
                       FROM {schema}.jobs
                      WHERE workflow_id = wanted.id::uuid AND workflow_id IS NOT NULL AND status = (SELECT 'blocked'::text)
                        AND limit_key IS NULL AND left(node, 1) = '@'
                      ORDER BY workflow_id, status, id OFFSET 0) AS jobs;

-- name: mark_workflow
-- Record the status of a workflow.
UPDATE {schema}.workflows
   SET status = new.status,
       finished_at = CASE WHEN new.finished THEN COALESCE(finished_at, {now}) END
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, status text, finished boolean)
 WHERE workflows.id = new.id
   AND workflows.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)));

-- name: reopen
-- Run failed and cancelled jobs of a workflow again: now, or after the jobs that they wait for.
UPDATE {schema}.jobs
   SET status = CASE WHEN left(node, 1) = '@' OR EXISTS (SELECT 1 FROM {schema}.edges WHERE child_id = jobs.id) THEN 'blocked' ELSE 'pending' END,
       attempts = 0, crashes = 0, deaths = 0, suspect = false, verdict = NULL, unreadable_since = NULL, error = NULL, cancel_requested = false,
       started_at = NULL, completed_at = NULL, keep_until = NULL, worker_id = NULL, progress = NULL, message = NULL,
       limit_key = NULL, rerun_at = NULL, seen = NULL, updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id FROM {schema}.jobs
                       WHERE workflow_id = :workflow::text::uuid AND workflow_id IS NOT NULL AND status IN ({reopen})
                       ORDER BY workflow_id, status, id
                         FOR UPDATE))
   AND COALESCE(status, '') IN ({reopen})
RETURNING id::text, queue, status;

-- name: clear_outcomes
-- Clear the outcomes of these jobs in the edges: other jobs wait for them again.
UPDATE {schema}.edges
   SET outcome = NULL
 WHERE parent_id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: release_node
-- Let a held job run although a job that it waits for has failed.
UPDATE {schema}.edges
   SET outcome = 'released'
 WHERE child_id = :id::text::uuid
   AND COALESCE(outcome, '') = ''
   AND COALESCE((SELECT status FROM {schema}.jobs WHERE jobs.id = edges.parent_id), 'failed') IN ('failed', 'cancelled')
RETURNING parent_id::text;
UPDATE {schema}.jobs
   SET seen = NULL
 WHERE id = :id::text::uuid;

-- name: parents
-- The jobs that a job waits for or waited for, and their outcomes, in the order in which they were named.
SELECT edges.parent_id::text, edges.policy, edges.outcome, jobs.node, jobs.type, jobs.status,
       jobs.result::text                                                                                --? results
       NULL                                                                                             --? plain
  FROM {schema}.edges
  LEFT JOIN {schema}.jobs ON jobs.id = edges.parent_id
 WHERE edges.child_id = :id::text::uuid
 ORDER BY edges.place;

-- name: workflows
-- Workflows, the newest first.
SELECT id::text, name, status, created_at::text, finished_at::text
  FROM {schema}.workflows
 WHERE id < :before::text::uuid                                                                         --? page
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:workflows::text::json)::uuid))                   --? some
 ORDER BY workflows.id DESC
 LIMIT :limit::int;

-- name: workflow_counts
-- How many jobs of some workflows have which status. Callbacks do not count.
SELECT jobs.workflow_id::text, jobs.status, jobs.number
  FROM json_array_elements_text(:workflows::text::json) AS wanted (id)
 CROSS JOIN LATERAL (SELECT workflow_id, status, count(*) AS number
                       FROM (SELECT workflow_id, status, node FROM {schema}.jobs
                              WHERE workflow_id = wanted.id::uuid AND workflow_id IS NOT NULL
                              ORDER BY workflow_id, status, id
                              LIMIT :cap::int) AS few
                      WHERE left(node, 1) <> '@'
                      GROUP BY workflow_id, status) AS jobs;

-- name: members
-- The jobs of a workflow, some at a time.
SELECT {columns}
  FROM {schema}.jobs
 WHERE workflow_id = :workflow::text::uuid
   AND workflow_id IS NOT NULL
   AND (status, id) > (:status::text, :after::text::uuid)
 ORDER BY workflow_id, status, id
 LIMIT :limit::int;

-- name: edges
-- Which job waits for which, among some jobs.
SELECT child_id::text, parent_id::text, policy, outcome
  FROM {schema}.edges
 WHERE child_id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
 ORDER BY child_id, place;

-- name: orphans
-- Jobs that wait for a job that was deleted: a bounded search.
SELECT max(child_id::text), count(*),
       json_agg(child_id) FILTER (WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE jobs.id = parent_id))
  FROM (SELECT child_id, parent_id
          FROM {schema}.edges
         WHERE outcome IS NULL
           AND child_id > :after::text::uuid
         ORDER BY child_id
         LIMIT :limit::int) AS look;

-- name: follow_up_again
-- Follow up these jobs once more.
UPDATE {schema}.jobs
   SET seen = NULL
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
   AND COALESCE(status, '') = 'blocked';

-- name: abandoned
-- Running workflows without a job that could still end: a bounded search.
SELECT max(id::text), count(*),
       json_agg(id) FILTER (WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs
                                               WHERE workflow_id = look.id AND workflow_id IS NOT NULL
                                                 AND jobs.status IN ({unfinished}) AND left(node, 1) <> '@'
                                               ORDER BY workflow_id, jobs.status, jobs.id LIMIT 1 OFFSET 0))
  FROM (SELECT id
          FROM {schema}.workflows
         WHERE finished_at IS NULL
           AND id > :after::text::uuid
         ORDER BY workflows.id
         LIMIT :limit::int) AS look;

-- name: prune_workflows
-- Delete workflows that ended some time ago and have no job left.
DELETE FROM {schema}.workflows
 WHERE id = ANY(ARRAY(SELECT id
                        FROM {schema}.workflows
                       WHERE finished_at < {now} - :keep::bigint * interval '1 microsecond'
                         AND NOT EXISTS (SELECT 1 FROM {schema}.jobs
                                          WHERE workflow_id = workflows.id AND workflow_id IS NOT NULL
                                          ORDER BY workflow_id, jobs.status, jobs.id LIMIT 1 OFFSET 0)
                       ORDER BY finished_at
                       LIMIT :limit::int
                         FOR UPDATE SKIP LOCKED))
RETURNING id::text;
