/** Icons: strokes on a 16 x 16 grid, in the colour of the text around them. */
import { html } from '../lib.js';

const PATHS = {
  overview: 'M2 13.500h12M3.500 11V8M6.500 11V4.500M9.500 11V6.500M12.500 11V3',
  jobs: 'M5.500 4h8M5.500 8h8M5.500 12h8M2.500 4h.01M2.500 8h.01M2.500 12h.01',
  errors: 'M8 2.500 14 13.200H2zM8 6.500v3M8 11.400h.01',
  workflows: 'M2.500 2.500h4v4h-4zM9.500 9.500h4v4h-4zM4.500 6.500v5h5',
  schedules: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.800V8l2.200 1.400',
  queues: 'M2.500 4.500 8 2l5.500 2.500L8 7zM2.500 8 8 10.500 13.500 8M2.500 11.400 8 14l5.500-2.600',
  tasks: 'M5.500 4.500 2 8l3.500 3.500M10.500 4.500 14 8l-3.500 3.500',
  workers: 'M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5h.01M5 11h.01',
  limits: 'M2.200 11.500a6 6 0 1 1 11.600 0M8 10.500l2.600-4',
  activity: 'M1.500 8h3l2-4.500 3 9 2-4.500h3',
  system: 'M2.500 4.200h7M12.500 4.200h1M2.500 8h1M6.500 8h7M2.500 11.800h5M10.500 11.800h3M11 2.900v2.600M5 6.700v2.600M9 10.500v2.600',
  access: 'M3.500 7.500h9v6h-9zM5.500 7.500V5a2.500 2.500 0 0 1 5 0v2.500',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.400 10.400 14 14',
  plus: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  check: 'M3 8.500 6.500 12 13 4.500',
  dash: 'M4 8h8',
  right: 'M6 3.500 10.500 8 6 12.500',
  down: 'M3.500 6 8 10.500 12.500 6',
  external: 'M9.500 3H13v3.500M13 3 7.500 8.500M11 9.500V13H3V5h3.500',
  copy: 'M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  retry: 'M13 8a5 5 0 1 1-1.600-3.700M13 2.500v2.600h-2.600',
  cancel: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM4 12l8-8',
  trash: 'M3 4.500h10M6.500 4.500V2.500h3v2M4.500 4.500l.6 9h5.800l.6-9',
  play: 'M5 3.500v9l7.500-4.500z',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  edit: 'M3 13l.6-2.800L10.800 3 13 5.200l-7.200 7.200z',
  more: 'M3.500 8h.01M8 8h.01M12.500 8h.01',
  menu: 'M2.500 4.500h11M2.500 8h11M2.500 11.500h11',
  sun: 'M8 10.800a2.800 2.800 0 1 0 0-5.600 2.800 2.800 0 0 0 0 5.600zM8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9',
  moon: 'M13.200 9.600A5.500 5.500 0 0 1 6.400 2.800a5.500 5.500 0 1 0 6.800 6.800z',
  auto: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h4.800M8 8h6M8 11h4.800',
  download: 'M8 2.500v7.500M4.800 7 8 10.200 11.200 7M2.500 13.500h11',
  link: 'M6.800 9.200a2.600 2.600 0 0 0 3.700 0l2.300-2.300a2.600 2.600 0 0 0-3.700-3.700l-.8.8M9.200 6.800a2.600 2.600 0 0 0-3.700 0L3.200 9.100a2.600 2.600 0 0 0 3.700 3.700l.8-.8',
  logout: 'M6.500 13.500h-4v-11h4M10 4.800 13.200 8 10 11.200M13 8H6',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.500v3.300M8 5.200h.01',
  warning: 'M8 2.500 14 13.200H2zM8 6.500v3M8 11.400h.01',
  keyboard: 'M1.500 4h13v8h-13zM4 6.500h.01M6.700 6.500h.01M9.300 6.500h.01M12 6.500h.01M5 9.500h6',
  blocked: 'M4 7.200h8v5.300H4zM5.800 7.200V5.300a2.200 2.200 0 0 1 4.400 0v1.900',
  scheduled: 'M8 13.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM8 5v3l2 1.400',
  retrying: 'M12.600 8a4.600 4.600 0 1 1-1.500-3.400M12.600 2.800v2.400h-2.400',
  pending: 'M8 12.200a4.200 4.200 0 1 0 0-8.400 4.200 4.200 0 0 0 0 8.400z',
  running: 'M8 2.800A5.200 5.200 0 1 1 2.800 8',
  completed: 'M3.200 8.500 6.500 11.700 12.800 4.700',
  failed: 'M4.300 4.300l7.400 7.400M11.700 4.300l-7.400 7.400',
  cancelled: 'M8 13.200A5.200 5.200 0 1 0 8 2.800a5.200 5.200 0 0 0 0 10.400zM4.500 11.500l7-7',
  anchor: 'M8 5.200a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM8 5.200v8.500M5.600 7.200h4.800M3 9.500c.3 2.700 2.200 4.200 5 4.200s4.700-1.500 5-4.200',
};

/** Decoration: what it means is said in words beside it, or by the control's label. */
export function Icon({ name, size = 16, class: extra = '' }) {
  return html`<svg class=${`icon ${extra}`} viewBox="0 0 16 16" width=${size} height=${size} fill="none" stroke="currentColor"
    stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${PATHS[name] || ''} /></svg>`;
}

export const hasIcon = (name) => name in PATHS;
/** The strokes alone, for pictures that draw more than an icon. */
export const iconPath = (name) => PATHS[name] || PATHS.pending;
