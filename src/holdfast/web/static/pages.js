/**
 * Every page of the dashboard: a pattern, a title, the module that draws it.
 * A page is a module in pages/ whose default export is a component; it gets the pattern's values.
 * `nav` puts it into the side navigation (with an icon of icons.js), `key` is pressed after `g`.
 */
export const PAGES = [
  { path: '/', title: 'Overview', nav: 'overview', key: 'o', load: () => import('./pages/overview.js') },
  { path: '/jobs', title: 'Jobs', nav: 'jobs', key: 'j', load: () => import('./pages/jobs.js') },
  { path: '/jobs/:id', title: 'Job', under: '/jobs', load: () => import('./pages/job.js') },
  { path: '/errors', title: 'Errors', nav: 'errors', key: 'e', load: () => import('./pages/errors.js') },
];

/** Groups of the side navigation, by path; pages that are not in PAGES are left out. */
export const GROUPS = [
  ['Work', ['/', '/jobs', '/errors', '/workflows', '/schedules']],
  ['Capacity', ['/queues', '/tasks', '/workers', '/limits']],
  ['Operate', ['/activity', '/system', '/access']],
];
