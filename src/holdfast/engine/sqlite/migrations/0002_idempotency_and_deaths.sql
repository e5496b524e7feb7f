-- breaking: no
-- Idempotency keys; how often a job's process died under it; since when no worker could read its payload; a row that
-- health checks write.

ALTER TABLE holdfast_jobs ADD COLUMN idempotency_key TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN unreadable_since INTEGER;

-- At most one job of a task has an idempotency key, whatever its status.
CREATE UNIQUE INDEX IF NOT EXISTS holdfast_jobs_idempotency ON holdfast_jobs (type, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Recurring jobs that were not disabled by an operator: few, and health names those that killed their process.
CREATE INDEX IF NOT EXISTS holdfast_jobs_disabled ON holdfast_jobs (type, key) WHERE disabled_because IS NOT NULL;

CREATE TABLE IF NOT EXISTS holdfast_probes (
    name TEXT    NOT NULL PRIMARY KEY,
    at   INTEGER NOT NULL
);

-- The pending job that has the turn of a key. (`in_line` was for versions before.)
ALTER TABLE holdfast_keys ADD COLUMN turn_id TEXT;
