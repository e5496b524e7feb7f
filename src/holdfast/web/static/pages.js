/**
 * Every page of the dashboard: a pattern, a title, the module that draws it.
 * A page is a module in pages/ whose default export is a component; it gets the pattern's values.
 * `nav` puts it into the side navigation (with an icon of icons.js), `key` is pressed after `g`.
 */
export const PAGES = [
  { path: '/', title: 'Overview', nav: 'overview', key: 'o', load: () => import('./pages/overview.js') },
  { path: '/jobs', title: 'Jobs', nav: 'jobs', key: 'j', load: () => import('./pages/jobs.js') },
  { path: '/jobs/:id', title: 'Job', under: '/jobs', load: () => import('./pages/job.js') },
  { path: '/workflows', title: 'Workflows', nav: 'workflows', key: 'f', load: () => import('./pages/workflows.js') },
  { path: '/workflows/:id', title: 'Workflow', under: '/workflows', load: () => import('./pages/workflow.js') },
  { path: '/schedules', title: 'Schedules', nav: 'schedules', key: 's', load: () => import('./pages/schedules.js') },
  { path: '/queues', title: 'Queues', nav: 'queues', key: 'q', load: () => import('./pages/queues.js') },
  { path: '/queues/:name', title: 'Queue', under: '/queues', load: () => import('./pages/queue.js') },
  { path: '/tasks', title: 'Tasks', nav: 'tasks', key: 't', load: () => import('./pages/tasks.js') },
  { path: '/tasks/:name', title: 'Task', under: '/tasks', load: () => import('./pages/task.js') },
  { path: '/workers', title: 'Workers', nav: 'workers', key: 'w', load: () => import('./pages/workers.js') },
  { path: '/activity', title: 'Activity', nav: 'activity', key: 'a', load: () => import('./pages/activity.js') },
  { path: '/system', title: 'System', nav: 'system', key: 'y', load: () => import('./pages/system.js') },
  { path: '/errors', title: 'Errors', nav: 'errors', key: 'e', load: () => import('./pages/errors.js') },
];

/** Groups of the side navigation, by path; pages that are not in PAGES are left out. */
export const GROUPS = [
  ['Work', ['/', '/jobs', '/errors', '/workflows', '/schedules']],
  ['Capacity', ['/queues', '/tasks', '/workers', '/limits']],
  ['Operate', ['/activity', '/system', '/access']],
];
