// @ts-check
// Several clusters, a line each. Text is set as text, never as markup.

/**
 * @typedef {{name: string, link: string, state: string, words: string, waiting: number | null, running: number | null,
 *   moved: number | null, needs: number | null, type: string, seen: number | null}} Cluster
 */

export const EVERY_MS = 2000;
/** Above this many seconds without an answer a line is stale. */
export const STALE_S = 20;

/** "3 clusters: 1 needs you, 1 unknown" @param {Cluster[]} clusters */
export function summed(clusters) {
  const count = (/** @type {string} */ state) => clusters.filter((one) => one.state === state).length;
  const needs = count('needs-you'), unknown = count('unknown');
  const said = [needs ? `${needs} ${needs === 1 ? 'needs' : 'need'} you` : '', unknown ? `${unknown} unknown` : ''].filter(Boolean);
  const head = clusters.length === 1 ? '1 cluster' : `${clusters.length} clusters`;
  return `${head}: ${said.join(', ') || 'none needs you'}`;
}

/** "4 s ago" @param {number | null} seen @param {number} now */
export function ago(seen, now) {
  if (seen === null) return 'never';
  const s = Math.max(0, Math.round(now - seen));
  return s < 60 ? `${s} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : `${Math.floor(s / 3600)} h ago`;
}

/** A link that leads to a page and nowhere else: what a cluster says is not trusted. @param {string} link */
export function safeLink(link) {
  try { return ['http:', 'https:'].includes(new URL(link).protocol) ? link : ''; } catch { return ''; }
}

/** @param {Cluster} one @param {number} now */
function row(one, now) {
  const tr = document.createElement('tr');
  tr.dataset.state = one.state;
  if (one.seen !== null && now - one.seen > STALE_S) tr.className = 'stale';
  const head = document.createElement('th');
  head.scope = 'row';
  const link = safeLink(one.link);
  if (link) {
    const a = document.createElement('a');
    a.href = link; a.textContent = one.name; a.rel = 'noreferrer';
    head.append(a);
  } else head.textContent = one.name;
  const words = document.createElement('td');
  words.className = 'words';
  words.textContent = one.words;
  if (one.type) {
    const code = document.createElement('code');
    code.textContent = one.type;
    words.append(code);
  }
  tr.append(head, words);
  for (const n of [one.waiting, one.running, one.moved]) {
    const td = document.createElement('td');
    td.className = 'number';
    td.textContent = n === null ? '?' : n.toLocaleString('en');
    tr.append(td);
  }
  const age = document.createElement('td');
  age.textContent = ago(one.seen, now);
  tr.append(age);
  return tr;
}

let told = '';

/** @param {{now: number, clusters: Cluster[]}} answer */
function show(answer) {
  const by = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
  by('rows').replaceChildren(...answer.clusters.map((one) => row(one, answer.now)));
  const sum = summed(answer.clusters);
  by('sum').textContent = sum;
  document.title = `Mooring: ${sum}`;
  if (sum !== told) by('live').textContent = told = sum;
}

async function follow() {
  const pulse = /** @type {HTMLElement} */ (document.getElementById('pulse'));
  try {
    show(await (await fetch('/api/clusters')).json());
    pulse.textContent = 'LIVE'; pulse.dataset.state = 'live';
  } catch {
    pulse.textContent = 'mooring page does not answer'; pulse.dataset.state = 'grey';
  }
  setTimeout(follow, EVERY_MS);
}

if (typeof document !== 'undefined') follow();
