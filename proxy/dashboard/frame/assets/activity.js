// The page Activity, with a script: new calls come by themselves, and a range of bars is chosen by dragging
// or by keys. It runs after dashboard.js, whose `pageAt` and `take` it uses.

/** A request that nobody makes by hand does not keep a session alive. */
const BY_ITSELF = { headers: { 'x-sallyport-watching': 'yes' } }
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

/** Follows new rows, until somebody pauses that: events announce them, the page shows them. */
function follow(place) {
  const button = document.createElement('button')
  const said = document.createElement('span')
  let source = null
  let [looking, again] = [false, false]

  const say = (text) => {
    button.textContent = source ? 'Pause' : 'Follow'
    button.setAttribute('aria-pressed', String(source !== null))
    said.textContent = text
  }
  const stop = (text) => {
    source?.close()
    source = null
    say(text)
  }
  // At most once a second, a fifth of the time if the server is busy, and nothing for a page that nobody
  // sees.
  const look = async () => {
    again = true
    if (looking) return
    looking = true
    while (source && again && document.visibilityState === 'visible') {
      again = false
      const from = performance.now()
      const page = await pageAt(location.href, BY_ITSELF)
      if (source && page) show(page)
      await pause(Math.max(1_000, 4 * (performance.now() - from)))
    }
    looking = false
  }
  const why = async () => {
    const page = await pageAt(location.href, BY_ITSELF)
    return page?.getElementById('calls')
      ? 'Not following: too many pages already follow the ledger.'
      : 'Not following: sign in again.'
  }
  const start = () => {
    source = new EventSource(place.dataset.live)
    say('Connecting…')
    source.addEventListener('open', () => {
      say('New calls appear as they come.')
      void look()
    })
    source.addEventListener('rows', () => void look())
    source.addEventListener('error', () => {
      if (source?.readyState !== EventSource.CLOSED) return say('Reconnecting…')
      stop('Not following.')
      void why().then((text) => source || say(text))
    })
  }
  button.type = 'button'
  button.addEventListener('click', () => (source ? stop('Paused.') : start()))
  said.setAttribute('role', 'status')
  said.className = 'faint'
  document.addEventListener('visibilitychange', () => void (again && look()))
  say('')
  place.prepend(button, ' ', said, ' ')
}

/** Replaces the page's old parts by new ones, and leaves the keyboard where it is. */
function show(page) {
  const focused = document.activeElement?.closest('#calls a')?.getAttribute('href')
  take(page, 'calls')
  if (focused) document.querySelector(`#calls a[href="${CSS.escape(focused)}"]`)?.focus()
  if (brush.isHeld() || document.activeElement?.closest('#chart svg')) return
  take(page, 'chart')
  brush.begin()
}

/** Chooses a range of bars: by dragging over them, or by arrows with Shift and then Enter. */
function brushOver() {
  let [first, last, dragging] = [-1, -1, false]
  const drawing = () => document.querySelector('#chart svg')
  const bars = () => [...(drawing()?.querySelectorAll('a') ?? [])]
  const ends = () => [Math.min(first, last), Math.max(first, last)]

  const mark = () => {
    const [from, to] = ends()
    const all = bars()
    for (const [n, bar] of all.entries()) bar.classList.toggle('chosen', first >= 0 && n >= from && n <= to)
    const said = document.getElementById('range')
    if (!said) return
    said.textContent =
      first < 0
        ? ''
        : `${from === to ? '1 bar' : `${to - from + 1} bars`} from ${all[from].dataset.since}: Enter shows them, Escape clears the selection.`
  }
  const clear = () => {
    first = last = -1
    mark()
  }
  const go = () => {
    const [from, to] = ends()
    const [begin, end] = [bars()[from], bars()[to]]
    if (!begin || !end) return
    const url = new URL(drawing().dataset.range, location.href)
    url.searchParams.set('since', begin.dataset.since)
    url.searchParams.set('until', end.dataset.until)
    location.assign(url.href)
  }
  /** The bar under the pointer; the nearest if it has left them. */
  const barAt = ({ clientX }) => {
    const { left, width } = drawing().getBoundingClientRect()
    const count = bars().length
    return Math.max(0, Math.min(count - 1, Math.floor(((clientX - left) / width) * count)))
  }
  /** One stop for the Tab key: arrows go from bar to bar. */
  const begin = () => {
    clear()
    for (const [n, bar] of bars().entries()) {
      bar.setAttribute('tabindex', n === bars().length - 1 ? '0' : '-1')
      bar.setAttribute('draggable', 'false')
    }
  }
  const moveTo = (n, extends_) => {
    const all = bars()
    const at = Math.max(0, Math.min(all.length - 1, n))
    for (const [other, bar] of all.entries()) bar.setAttribute('tabindex', other === at ? '0' : '-1')
    all[at]?.focus()
    if (extends_) last = at
    else first = last = -1
    mark()
  }

  document.addEventListener('pointerdown', (event) => {
    const isOver = event.target instanceof Element && event.target.closest('#chart svg')
    if (!isOver || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return
    first = last = barAt(event)
    dragging = true
    mark()
  })
  document.addEventListener('pointermove', (event) => {
    if (!dragging) return
    last = barAt(event)
    mark()
  })
  document.addEventListener('pointerup', () => {
    if (!dragging) return
    dragging = false
    // For one bar alone, its link does.
    if (first !== last) go()
    else clear()
  })
  document.addEventListener('pointercancel', () => {
    dragging = false
    clear()
  })
  // A link can be dragged itself, which would end the range.
  document.addEventListener('dragstart', (event) => {
    if (event.target instanceof Element && event.target.closest('#chart svg')) event.preventDefault()
  })
  // If a range ends on a bar's link, the range is meant.
  document.addEventListener(
    'click',
    (event) => {
      if (first !== last && event.target instanceof Element && event.target.closest('#chart svg'))
        event.preventDefault()
    },
    true,
  )
  document.addEventListener('keydown', (event) => {
    const bar = event.target instanceof Element ? event.target.closest('#chart svg a') : null
    if (!bar) return
    const all = bars()
    const at = all.indexOf(bar)
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key]
    if (to !== undefined) {
      event.preventDefault()
      if (event.shiftKey && first < 0) first = at
      moveTo(to, event.shiftKey)
    }
    if (event.key === 'Escape') clear()
    if (event.key === 'Enter' && first >= 0) {
      event.preventDefault()
      go()
    }
  })
  begin()
  return { begin, isHeld: () => dragging || first >= 0 }
}

const brush = brushOver()
const place = document.getElementById('follow')
if (place) follow(place)
