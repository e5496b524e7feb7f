/**
 * A table that becomes cards on narrow screens. Roles are said in full, because a browser forgets
 * them for tables that are not laid out as tables.
 * `columns`: [{name, label, cell(row), align, class, sr}]; `rowClass(row)`, `rowProps(row)` are optional.
 */
import { html } from '../lib.js';
import { Skeleton } from './basics.js';

export function Table({ label, columns, rows, rowKey = (row) => row.id, empty, loading = false, rowProps, class: extra = '' }) {
  if (loading) return html`<${Skeleton} lines=${6} />`;
  if (!rows.length && empty) return empty;
  return html`<div class="table-wrap" role="group" aria-label=${label} tabindex="0"><table class=${`table ${extra}`} role="table" aria-label=${label}>
    <thead role="rowgroup"><tr role="row">${columns.map((column) => html`
      <th role="columnheader" scope="col" key=${column.name} class=${`col-${column.name} ${column.align === 'end' ? 'end' : ''}`}>
        ${column.sr ? html`<span class="sr">${column.label}</span>` : column.label}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row" key=${rowKey(row)} ...${rowProps ? rowProps(row) : {}}>
      ${columns.map((column) => html`<td role="cell" key=${column.name} data-label=${column.sr ? '' : column.label}
        class=${`col-${column.name} ${column.align === 'end' ? 'end' : ''} ${column.class || ''}`}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}
