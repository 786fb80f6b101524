import type { Page } from 'playwright-core'

/** A phone, a tablet, a desk and a wall, each in one of the two colour schemes. */
const SCREENS = [
  { width: 390, height: 844, colorScheme: 'light' },
  { width: 768, height: 1024, colorScheme: 'dark' },
  { width: 1280, height: 800, colorScheme: 'light' },
  { width: 2560, height: 1440, colorScheme: 'dark' },
] as const

/** What nobody can read well of the page that a browser shows, at each screen: loaded once, and resized. */
export async function geometryFaults(page: Page): Promise<readonly string[]> {
  const faults: string[] = []
  for (const { width, height, colorScheme } of SCREENS) {
    await page.setViewportSize({ width, height })
    await page.emulateMedia({ colorScheme })
    const found = (await page.evaluate(MEASURED)) as readonly string[]
    faults.push(...found.slice(0, 5).map((fault) => `${width} px: ${fault}`))
  }
  return faults
}

/**
 * Runs in the page. Texts are measured as the lines that they stand in. A table, or a list of what waits, may be as long
 * as what is in it: a page without those is four screens high at most.
 */
const MEASURED = `(() => {
  const faults = []
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize)
  const named = (element) => element.tagName.toLowerCase() + (element.className && typeof element.className === 'string' ? '.' + element.className.replaceAll(' ', '.') : '') + ' "' + (element.textContent ?? '').trim().slice(0, 30) + '"'
  const over = document.documentElement.scrollWidth - innerWidth
  if (over > 0) faults.push('sticks out by ' + over + ' px')
  const listed = [...document.querySelectorAll('table, .needs-you, .pile')].filter((one) => !one.parentElement.closest('table, .needs-you, .pile'))
  const own = document.documentElement.scrollHeight - listed.reduce((sum, one) => sum + one.getBoundingClientRect().height, 0)
  if (own > 4 * innerHeight) faults.push('is ' + Math.round(own) + ' px high without its lists, more than four screens')
  const closed = [...document.querySelectorAll('details:not([open])')]
  for (const one of closed) one.open = true
  const lines = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const range = document.createRange()
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement
    if (node.data.trim() === '' || parent.closest('.skip, .said, option, textarea, script, style, svg')) continue
    range.selectNodeContents(node)
    for (const { left, right, top, bottom } of range.getClientRects())
      if (right - left > 1 && bottom - top > 1) lines.push({ parent, node, left, right, top, bottom })
  }
  // A text stays in every box around it, up to the one that scrolls.
  const spilled = new Set()
  for (const { parent, left, right } of lines)
    for (let box = parent; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box)
      if (style.overflowX === 'auto' || style.overflowX === 'scroll') break
      if (style.display === 'inline' || style.display === 'contents') continue
      const { left: from, right: to } = box.getBoundingClientRect()
      if ((left < from - 1 || right > to + 1) && !spilled.has(box)) {
        spilled.add(box)
        faults.push('a text leaves ' + named(box))
      }
    }
  for (const box of document.querySelectorAll('body *')) {
    const { overflowX, overflowY } = getComputedStyle(box)
    const cut = (overflowX === 'hidden' || overflowX === 'clip') && box.scrollWidth > box.clientWidth + 1
    const cutBelow = (overflowY === 'hidden' || overflowY === 'clip') && box.scrollHeight > box.clientHeight + 1
    if ((cut || cutBelow) && !box.closest('svg, input')) faults.push('cuts ' + named(box))
  }
  // A narrow box is right only for what is short: all that it says in one line.
  const boxes = new Map()
  for (const line of lines) {
    const box = line.parent.closest('pre, td, th, dd, dt')
    if (!box) continue
    const rows = boxes.get(box) ?? []
    boxes.set(box, rows)
    rows.push(line)
  }
  for (const [box, rows] of boxes) {
    const { width } = box.getBoundingClientRect()
    if (width >= 12 * rem - 1) continue
    const length = rows.reduce((sum, { left, right }) => sum + right - left, 0)
    const isOneLine = rows.every(({ top, bottom }) => top < rows[0].bottom - 2 && bottom > rows[0].top + 2)
    if (!isOneLine && length > 12 * rem) faults.push(named(box) + ' is ' + Math.round(width) + ' px narrow')
  }
  lines.sort((one, other) => one.top - other.top)
  const overlaps = new Set()
  for (let at = 0; at < lines.length; at += 1)
    for (let next = at + 1; next < lines.length && lines[next].top < lines[at].bottom - 3; next += 1) {
      const [one, other] = [lines[at], lines[next]]
      if (one.node === other.node || overlaps.has(one.parent)) continue
      if (Math.min(one.right, other.right) - Math.max(one.left, other.left) < 2) continue
      if (Math.min(one.bottom, other.bottom) - other.top < 4) continue
      // What is scrolled out of sight lies over nothing.
      const frame = (line) => line.parent.closest('.wide')
      if (frame(one) !== frame(other)) continue
      overlaps.add(one.parent)
      faults.push(named(one.parent) + ' lies over ' + named(other.parent))
    }
  for (const one of closed) one.open = false
  return faults
})()`
