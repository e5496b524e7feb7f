/** Numbers, times and sizes in few characters, and text that cannot deceive. */
import { zone } from './zone.js';

const numbers = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? '–' : numbers.format(value));
/** "10,000+" where counting stopped. */
export const capped = (value, cap) => (cap && value >= cap ? `${numbers.format(cap)}+` : count(value));
export const compact = (value) => (value < 10000 ? count(value) : short.format(value));
export const cappedShort = (value, cap) => (cap && value >= cap ? `${short.format(cap).toLowerCase()}+` : compact(value ?? 0));

export function percent(part) {
  if (part === null || part === undefined) return '–';
  if (part === 0) return '0 %';
  return part < 0.001 ? '<0.1 %' : `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
}

/** A rate by the minute, or by the second where that reads better. */
export function rate(perMinute) {
  if (perMinute === null || perMinute === undefined) return '–';
  if (perMinute >= 120) return `${compact(round(perMinute / 60))}/s`;
  return `${round(perMinute)}/min`;
}

const round = (value) => (value >= 100 ? Math.round(value) : value >= 10 ? Number(value.toFixed(1)) : Number(value.toFixed(2)));

/** Seconds as "420 ms", "3.2 s", "1m 15s", "2h 5m", "3d 4h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return '–';
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return '0 s';
  if (seconds < 0.9995) return seconds < 0.001 ? '<1 ms' : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return pair(whole, 60, 'm', 1, 's');
  if (whole < 86400) return pair(whole, 3600, 'h', 60, 'm');
  return pair(whole, 86400, 'd', 3600, 'h');
}

function pair(whole, big, bigName, small, smallName) {
  const rest = Math.floor((whole % big) / small);
  return `${Math.floor(whole / big)}${bigName}${rest ? ` ${rest}${smallName}` : ''}`;
}

/** "12 s ago", "in 3m": a moment as seen from `now` (milliseconds). */
export function relative(moment, now) {
  const away = (Date.parse(moment) - now) / 1000;
  if (Number.isNaN(away)) return '–';
  if (Math.abs(away) < 1) return 'now';
  const text = coarse(Math.abs(away));
  return away > 0 ? `in ${text}` : `${text} ago`;
}

function coarse(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) {
    const hours = Math.floor(seconds / 3600);
    const minutes = Math.floor((seconds % 3600) / 60);
    return hours < 6 && minutes ? `${hours}h ${minutes}m` : `${hours} h`;
  }
  return `${Math.floor(seconds / 86400)} d`;
}

const pad = (value, width = 2) => String(value).padStart(width, '0');

/** What a calendar and a clock show: the reader's own, or those of UTC. */
function shown(date, where) {
  const get = (what) => date[`get${where === 'UTC' ? 'UTC' : ''}${what}`]();
  return {
    day: `${get('FullYear')}-${pad(get('Month') + 1)}-${pad(get('Date'))}`,
    minute: `${pad(get('Hours'))}:${pad(get('Minutes'))}`,
    second: `${pad(get('Hours'))}:${pad(get('Minutes'))}:${pad(get('Seconds'))}`,
    millis: pad(get('Milliseconds'), 3),
  };
}

/** By the clock that was chosen; the day only if it is not today. */
export function clock(moment, now, { millis = false } = {}) {
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return '–';
  const { day, second, millis: rest } = shown(date, zone.value);
  const time = millis ? `${second}.${rest}` : second;
  return day === shown(new Date(now), zone.value).day ? time : `${day} ${time}`;
}

/** Hours and minutes of so many seconds since 1970, for charts. */
export const minute = (seconds) => shown(new Date(seconds * 1000), zone.value).minute;

/** Everything about a moment, for a tooltip: the reader's time, and that of UTC. */
export function fullTime(moment) {
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return String(moment);
  const { day, second, millis } = shown(date, 'local');
  return `${day} ${second}.${millis} local · ${moment}`;
}

export const secondsBetween = (from, to) => (from && to ? (Date.parse(to) - Date.parse(from)) / 1000 : null);

export function bytes(size) {
  if (size === null || size === undefined) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = Number(size);
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${Number(number) === 1 ? one : many}`;

/** The end of an id tells more than its beginning, which is a time. */
export const shortId = (id) => (id && id.length > 12 ? id.slice(-8) : id);

// Control characters, and those that turn the direction of text or have no width.
export const DECEIVING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
const EACH = new RegExp(DECEIVING.source, 'g');

export const escapeOf = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
/** For attributes and other plain strings; components use <Text>. */
export const visible = (text) => String(text ?? '').replace(EACH, escapeOf);
