-- breaking: no
-- Jobs, their bodies, their failed attempts; workers and queues. Times are microseconds since 1970.

CREATE TABLE holdfast_jobs (
    id               TEXT    NOT NULL PRIMARY KEY,
    type             TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ({every_status})),
    priority         INTEGER NOT NULL,
    rank             INTEGER NOT NULL,
    key              TEXT,
    entity_type      TEXT,
    entity_id        TEXT,
    attempts         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL,
    crashes          INTEGER NOT NULL DEFAULT 0,
    suspect          INTEGER NOT NULL DEFAULT 0,
    verdict          TEXT,
    claim_no         INTEGER NOT NULL DEFAULT 0,
    finish_no        INTEGER NOT NULL DEFAULT 0,
    worker_id        TEXT,
    timeout          REAL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    started_at       INTEGER,
    completed_at     INTEGER,
    keep_until       INTEGER,
    prunings         INTEGER NOT NULL DEFAULT 0,
    prune_error      TEXT,
    rerun_at         INTEGER,
    error            TEXT,
    progress         REAL,
    message          TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    expires_at       INTEGER,
    limit_name       TEXT,
    limit_key        TEXT,
    limit_queue      TEXT,
    schedule         TEXT,
    enabled          INTEGER NOT NULL DEFAULT 1,
    disabled_because TEXT,
    due_at           INTEGER,
    last_run_at      INTEGER,
    last_error       TEXT,
    consecutive_failures INTEGER NOT NULL DEFAULT 0,
    workflow_id      TEXT,
    node             TEXT,
    seen             TEXT
) WITHOUT ROWID;

-- What a claim walks: one type of one queue, in the order of running; those that must run alone are not on the way.
CREATE INDEX holdfast_jobs_claim ON holdfast_jobs (queue, type, suspect, rank, run_at, id) WHERE status = 'pending';

-- Those whose process died under them: few, and run alone.
CREATE INDEX holdfast_jobs_suspect ON holdfast_jobs (rank, run_at, id) WHERE status = 'pending' AND suspect;

-- What promote walks, and what tells when to look again.
CREATE INDEX holdfast_jobs_due ON holdfast_jobs (run_at, id) WHERE status IN ('scheduled', 'retrying') AND enabled;

-- What counts under a limit: of a task or a name, of a key, of a queue. Jobs without limits are in none of these.
CREATE INDEX holdfast_jobs_slots ON holdfast_jobs (limit_name) WHERE status = 'running' AND limit_name IS NOT NULL;
CREATE INDEX holdfast_jobs_keyed ON holdfast_jobs (limit_key) WHERE status = 'running' AND limit_key IS NOT NULL;
CREATE INDEX holdfast_jobs_crowd ON holdfast_jobs (limit_queue) WHERE status = 'running' AND limit_queue IS NOT NULL;

-- Who waits for a key, in the order of running.
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (limit_key, rank, run_at, id) WHERE status = 'blocked' AND limit_key IS NOT NULL;

-- Recurring jobs: one row each, by task and key.
CREATE INDEX holdfast_jobs_recurring ON holdfast_jobs (type, key) WHERE schedule IS NOT NULL;

-- What a worker holds.
CREATE INDEX holdfast_jobs_held ON holdfast_jobs (worker_id, id) WHERE status = 'running';

-- Lists by status, newest first, and pruning, oldest first. Running jobs are few: see above.
CREATE INDEX holdfast_jobs_listed ON holdfast_jobs (status, id) WHERE status <> 'running';

-- A key is unique among the unfinished jobs of its task.
CREATE UNIQUE INDEX holdfast_jobs_key ON holdfast_jobs (type, key) WHERE key IS NOT NULL AND status IN ({unfinished});

CREATE INDEX holdfast_jobs_entity ON holdfast_jobs (entity_type, entity_id, id) WHERE entity_type IS NOT NULL;

-- The jobs of a workflow; and those of them of which the consequences are to be drawn.
CREATE INDEX holdfast_jobs_workflow ON holdfast_jobs (workflow_id, status, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX holdfast_jobs_unseen ON holdfast_jobs (workflow_id, id) WHERE workflow_id IS NOT NULL AND {unseen};

-- Apart from the row, and from each other: SQLite writes a row anew when any of it changes.
CREATE TABLE holdfast_payloads (
    job_id  TEXT NOT NULL PRIMARY KEY,
    payload TEXT NOT NULL
);

CREATE TABLE holdfast_results (
    job_id TEXT NOT NULL PRIMARY KEY,
    result TEXT NOT NULL
);

CREATE TABLE holdfast_attempts (
    job_id      TEXT    NOT NULL,
    claim_no    INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    worker_id   TEXT,
    started_at  INTEGER,
    finished_at INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    error       TEXT,
    trace       TEXT,
    PRIMARY KEY (job_id, claim_no)
);

-- What handlers wrote with ctx.log.
CREATE TABLE holdfast_logs (
    job_id   TEXT    NOT NULL,
    claim_no INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    line_no  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    level    TEXT    NOT NULL,
    text     TEXT    NOT NULL,
    PRIMARY KEY (job_id, claim_no, line_no)
);

-- A trigger, not a foreign key: it also fires on connections of the application, where foreign keys are off by default.
CREATE TRIGGER holdfast_jobs_gone AFTER DELETE ON holdfast_jobs
BEGIN
    DELETE FROM holdfast_payloads WHERE job_id = OLD.id;
    DELETE FROM holdfast_results WHERE job_id = OLD.id;
    DELETE FROM holdfast_attempts WHERE job_id = OLD.id;
    DELETE FROM holdfast_logs WHERE job_id = OLD.id;
    DELETE FROM holdfast_edges WHERE child_id = OLD.id;
END;

-- Jobs that wait for other jobs. Its row is held while somebody draws the consequences of what has ended.
CREATE TABLE holdfast_workflows (
    id          TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    status      TEXT    NOT NULL DEFAULT 'running',
    created_at  INTEGER NOT NULL,
    finished_at INTEGER
) WITHOUT ROWID;

CREATE INDEX holdfast_workflows_open ON holdfast_workflows (id) WHERE finished_at IS NULL;
CREATE INDEX holdfast_workflows_finished ON holdfast_workflows (finished_at) WHERE finished_at IS NOT NULL;

-- The outcome is that of the parent, once it matters no more.
CREATE TABLE holdfast_edges (
    child_id  TEXT    NOT NULL,
    parent_id TEXT    NOT NULL,
    place     INTEGER NOT NULL,
    policy    TEXT    NOT NULL,
    outcome   TEXT,
    PRIMARY KEY (child_id, parent_id)
) WITHOUT ROWID;

CREATE INDEX holdfast_edges_parent ON holdfast_edges (parent_id);
CREATE INDEX holdfast_edges_open ON holdfast_edges (child_id) WHERE outcome IS NULL;

CREATE TABLE holdfast_workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    info       TEXT    NOT NULL,
    beat_no    INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL,
    left_at    INTEGER,
    died_at    INTEGER,
    asked_at   INTEGER,
    stacks_at  INTEGER,
    stacks     TEXT
) WITHOUT ROWID;

CREATE INDEX holdfast_workers_dead ON holdfast_workers (died_at) WHERE died_at IS NOT NULL;

CREATE TABLE holdfast_queues (
    name      TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER,
    resume_at INTEGER
) WITHOUT ROWID;

-- Tasks whose finished jobs may go only after a hook was called, which somebody must know.
CREATE TABLE holdfast_hooks (
    type TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- Limits as the code declares them, and what an operator has set instead. A rate is so many starts in a period.
CREATE TABLE holdfast_limits (
    name            TEXT    NOT NULL PRIMARY KEY,
    concurrency     INTEGER,
    rate            INTEGER,
    period          INTEGER,
    keyed           INTEGER NOT NULL DEFAULT 0,
    fair            INTEGER NOT NULL DEFAULT 0,
    tasks           TEXT    NOT NULL DEFAULT '[]',
    set_concurrency INTEGER,
    set_rate        INTEGER,
    set_period      INTEGER,
    updated_at      INTEGER NOT NULL
) WITHOUT ROWID;

-- The keys of limits: a limit without keys has one, of its own name. Locked while a claim counts.
CREATE TABLE holdfast_keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    name    TEXT    NOT NULL,
    starts  TEXT,
    wake_at INTEGER,
    in_line INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX holdfast_keys_name ON holdfast_keys (name, key);
CREATE INDEX holdfast_keys_wake ON holdfast_keys (wake_at) WHERE wake_at IS NOT NULL;

-- What each worker did of each task in each minute: counts, seconds in all, and histograms as JSON. Each row has one writer.
CREATE TABLE holdfast_rollups (
    minute    INTEGER NOT NULL,
    type      TEXT    NOT NULL,
    queue     TEXT    NOT NULL,
    worker_id TEXT    NOT NULL,
    completed INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    retried   INTEGER NOT NULL,
    wait      REAL    NOT NULL,
    run       REAL    NOT NULL,
    waits     TEXT    NOT NULL,
    runs      TEXT    NOT NULL,
    PRIMARY KEY (minute, type, queue, worker_id)
) WITHOUT ROWID;

-- What happened to jobs that somebody follows. Nobody resumes from before the floor.
CREATE TABLE holdfast_events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    job_id   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    data     TEXT    NOT NULL
);

CREATE TABLE holdfast_outbox (
    floor INTEGER NOT NULL
);

INSERT INTO holdfast_outbox VALUES (0);

-- Who follows what: a job, or '' for everything; of that nothing was left out since a position.
CREATE TABLE holdfast_followers (
    name  TEXT    NOT NULL,
    topic TEXT    NOT NULL,
    until INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (name, topic)
) WITHOUT ROWID;

-- Who may use the web interface. Of a secret only its hash is kept. A session belongs to the token that it came from.
CREATE TABLE holdfast_tokens (
    id           TEXT    NOT NULL PRIMARY KEY,
    hash         TEXT    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    kind         TEXT    NOT NULL CHECK (kind IN ('token', 'session')),
    scope        TEXT    NOT NULL,
    parent_id    TEXT,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER,
    created_by   TEXT
) WITHOUT ROWID;

CREATE INDEX holdfast_tokens_kind ON holdfast_tokens (kind, id);
CREATE INDEX holdfast_tokens_sessions ON holdfast_tokens (expires_at) WHERE kind = 'session';

-- What people and programs did by the web interface. Entries are added, never changed; numbers tell how many there are.
CREATE TABLE holdfast_audit (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    target     TEXT,
    detail     TEXT    NOT NULL,
    address    TEXT,
    request_id TEXT
);

-- What only those who use this database may know: it signs what they hand out.
CREATE TABLE holdfast_secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
