// Pages work without this; with it they are faster. It knows nothing that a page does not say itself.

// HTML of our own server, every value in it escaped: only this may become elements here.
const policy = globalThis.trustedTypes?.createPolicy('sallyport', { createHTML: (text) => text })

/** A page of ours, read but not shown; null if it did not come. */
async function pageAt(url, options = {}) {
  const answer = await fetch(url, { credentials: 'same-origin', ...options }).catch(() => null)
  if (!answer || !(answer.headers.get('content-type') ?? '').startsWith('text/html')) return null
  const text = await answer.text()
  return new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, 'text/html')
}

/** Puts an element of another page in the place of the same one here. */
function take(page, id) {
  const [here, there] = [document.getElementById(id), page?.getElementById(id)]
  if (!here || !there) return null
  here.replaceWith(document.adoptNode(there))
  return there
}

const later = (work, ms) => {
  let timer = 0
  return (...args) => {
    clearTimeout(timer)
    timer = setTimeout(() => work(...args), ms)
  }
}

/** The capabilities form: the typed set is rehearsed, and the button says the result. */
for (const form of document.querySelectorAll('form[data-rehearse]')) {
  const button = form.querySelector('button')
  const text = form.querySelector('textarea')
  let asked = 0
  const rehearse = later(async () => {
    const mine = ++asked
    const fields = new URLSearchParams(new FormData(form))
    fields.delete('confirm')
    fields.set('preview', 'yes')
    const page = await pageAt(form.action, { method: 'POST', body: fields })
    if (mine !== asked || !page) return
    take(page, 'rehearsal')
    take(page, 'caps-error')
    form.querySelector('input[name=confirm]')?.remove()
    const said = document.getElementById('rehearsal')?.dataset ?? {}
    button.textContent = said.button ?? 'Update'
    button.className = Number(said.refused ?? 0) > 0 ? 'danger' : 'main'
  }, 300)
  text.addEventListener('input', () => {
    // The shown result is that of another set.
    form.querySelector('input[name=confirm]')?.remove()
    rehearse()
  })
  // A link has typed something in.
  if (form.dataset.rehearse === 'now') rehearse()
}

/** Textboxes of tokens suggest those that anything knows. */
const boxes = document.querySelectorAll('.caps')
if (boxes.length > 0) void suggest(boxes)

async function suggest(all) {
  const answer = await fetch('/proxy/capabilities.json', { credentials: 'same-origin' }).catch(() => null)
  if (!answer?.ok) return
  const { capabilities } = await answer.json()
  for (const box of all) {
    const own = box.dataset.tokens === 'operator'
    const known = capabilities.map((one) => one.capability).filter((one) => one.startsWith('admin.') === own)
    const list = document.createElement('ul')
    list.className = 'suggestions'
    list.setAttribute('aria-label', 'Suggestions')
    box.after(list)
    const show = () => {
      const parts = box.value.split(',').map((one) => one.trim())
      const typed = parts.at(-1) ?? ''
      const fits = known.filter((one) => one.includes(typed) && !parts.includes(one)).slice(0, 12)
      list.replaceChildren(...fits.map((one) => suggestion(box, one, show)))
    }
    box.addEventListener('input', show)
    box.addEventListener('focus', show)
  }
}

function suggestion(box, token, show) {
  const button = document.createElement('button')
  button.type = 'button'
  button.textContent = token
  button.className = 'quiet'
  button.addEventListener('click', () => {
    const before = box.value
      .split(',')
      .slice(0, -1)
      .map((one) => one.trim())
    box.value = `${[...before.filter((one) => one !== ''), token].join(', ')}, `
    box.dispatchEvent(new Event('input', { bubbles: true }))
    box.focus()
    show()
  })
  const item = document.createElement('li')
  item.append(button)
  return item
}

/** A ready-made set is put into its form by a click. */
for (const name of document.querySelectorAll('[data-set]')) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'quiet'
  button.textContent = name.textContent
  button.addEventListener('click', () => {
    const box = button.closest('form').querySelector('.caps')
    box.value = name.dataset.set
    box.focus()
  })
  name.replaceWith(button)
}

/** Loads parts that take longer than a page should after the page. */
for (const place of document.querySelectorAll('[data-load]')) {
  const ids = [place.id, ...(place.dataset.also ?? '').split(' ')].filter((id) => id !== '')
  void load(place.dataset.load, ids, 1_000)
}

/**
 * Puts elements of another page in their place; asks again, later and later, if it was too busy to make them.
 */
async function load(url, ids, pauseMs) {
  const page = await pageAt(url)
  const isThere = ids.map((id) => take(page, id)).some((element) => element !== null)
  if (!isThere && pauseMs < 20_000) setTimeout(() => void load(url, ids, 2 * pauseMs), pauseMs)
}

/** Waits for an agent's first call. */
const waiting = document.querySelector('[data-wait]')
if (waiting) {
  const url = waiting.dataset.wait
  const look = async () => {
    const page = await pageAt(url)
    if (page?.querySelector('[data-arrived]')) take(page, 'first-call')?.classList.add('arrived')
    else setTimeout(look, 1_500)
  }
  setTimeout(look, 1_500)
}

/** A click copies a value that somebody may want elsewhere. */
document.addEventListener('click', (event) => {
  const found = event.target instanceof Element ? event.target.closest('.copy') : null
  if (found && String(getSelection()) === '') copy(found)
})

for (const text of document.querySelectorAll('pre.copy')) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'quiet'
  button.textContent = 'Copy'
  const title = text.previousElementSibling
  if (title?.matches('figcaption')) button.setAttribute('aria-label', `Copy: ${title.textContent}`)
  button.addEventListener('click', () => copy(text))
  if (title?.matches('figcaption')) title.append(button)
  else text.after(button)
}

function copy(element) {
  navigator.clipboard?.writeText(element.textContent ?? '').then(
    () => say('Copied'),
    () => say('This browser did not allow the copy'),
  )
}

/** A word for two seconds, also for who does not see the page. */
function say(word) {
  const said = document.createElement('p')
  said.className = 'said'
  said.setAttribute('role', 'status')
  document.body.append(said)
  // Announced only if it comes into an element that is there already.
  setTimeout(() => {
    said.textContent = word
  })
  setTimeout(() => said.remove(), 2_000)
}

/** j and k go through the lines, Enter opens one, / goes to the search, Ctrl-K or ⌘K asks where to. */
document.addEventListener('keydown', (event) => {
  const { target, key } = event
  if ((event.ctrlKey || event.metaKey) && key === 'k') {
    event.preventDefault()
    menu()
    return
  }
  if (target instanceof Element && target.closest('.copy') && key === 'Enter') copy(target.closest('.copy'))
  const typing = target instanceof Element && target.closest('input, textarea, button, a, summary, dialog')
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (typing && !(target.closest('a.row') && (key === 'j' || key === 'k'))) return
  if (key === '/') {
    const search = document.querySelector('[data-key="/"]')
    if (!search) return
    event.preventDefault()
    search.focus()
  }
  if (key === 'j' || key === 'k') move(key === 'j' ? 1 : -1)
})

function move(by) {
  const rows = [...document.querySelectorAll('a.row')]
  const at = rows.indexOf(document.activeElement)
  rows.at(at < 0 ? (by > 0 ? 0 : -1) : Math.max(0, Math.min(rows.length - 1, at + by)))?.focus()
}

function menu() {
  if (document.querySelector('dialog.menu')) return
  const dialog = document.createElement('dialog')
  dialog.className = 'menu'
  dialog.setAttribute('aria-label', 'Go to')
  const input = document.createElement('input')
  input.setAttribute('aria-label', 'Go to')
  const list = document.createElement('ul')
  const places = [...document.querySelectorAll('nav a')]
  const show = () => {
    const typed = input.value.toLowerCase()
    const fits = places.filter(({ textContent }) => textContent.toLowerCase().includes(typed))
    const agents = {
      href: `/proxy/agents?${new URLSearchParams({ q: input.value })}`,
      textContent: `Agents: ${input.value}`,
    }
    list.replaceChildren(
      ...[...fits, ...(typed === '' ? [] : [agents])].map(({ href, textContent }) => {
        const [item, link] = [document.createElement('li'), document.createElement('a')]
        link.href = href
        link.textContent = textContent
        item.append(link)
        return item
      }),
    )
  }
  input.addEventListener('input', show)
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') list.querySelector('a')?.click()
  })
  dialog.addEventListener('close', () => dialog.remove())
  dialog.append(input, list)
  document.body.append(dialog)
  show()
  dialog.showModal()
}

/** Says how strong a new secret is, by its length and its kinds of characters. */
for (const input of document.querySelectorAll('[data-strength]')) {
  const said = document.createElement('p')
  said.className = 'faint'
  said.setAttribute('role', 'status')
  input.after(said)
  input.addEventListener('input', () => {
    const { value } = input
    const kinds = [/[a-z]/, /[A-Z]/, /[0-9]/, /[^a-zA-Z0-9]/].filter((one) => one.test(value)).length
    const bits = value.length * [0, 4.7, 5.7, 5.95, 6.5][kinds]
    const different = new Set(value).size
    if (value === '') said.textContent = ''
    else if (!/^[!-~]*$/.test(value))
      said.textContent = 'no spaces and no accented letters, because it is sent in a header'
    else if (value.length < 12) said.textContent = 'too short'
    else if (bits < 70 || different < 8) said.textContent = 'weak'
    else said.textContent = bits < 100 ? 'good' : 'strong'
  })
}

/**
 * A folder that is shown this once, as one file: made here from the page's text, and never asked for again.
 */
for (const folder of document.querySelectorAll('[data-folder]')) {
  const path = folder.dataset.folder
  const name = `${path.split('/').at(-1)}.tar`
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'main'
  button.textContent = `Save all of them as ${name}`
  button.addEventListener('click', () => {
    const files = [...folder.querySelectorAll('[data-file]')]
    const parts = files.flatMap((one) => entryOf(`${path}/${one.dataset.file}`, one.textContent))
    const link = document.createElement('a')
    link.href = URL.createObjectURL(new Blob([...parts, new Uint8Array(1024)], { type: 'application/x-tar' }))
    link.download = name
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
  })
  folder.querySelector('h2').after(button)
}

/**
 * A file of a POSIX archive (ustar): its header, its text, and the padding of the last block. Readable by its
 * owner alone.
 */
function entryOf(name, text) {
  const body = new TextEncoder().encode(text)
  const header = new Uint8Array(512)
  const put = (at, field) => header.set(new TextEncoder().encode(field), at)
  const octal = (value, digits) => `${value.toString(8).padStart(digits, '0')}\0`
  put(0, name)
  put(100, octal(0o600, 7))
  put(108, octal(0, 7))
  put(116, octal(0, 7))
  put(124, octal(body.length, 11))
  put(136, octal(Math.floor(Date.now() / 1000), 11))
  put(148, ' '.repeat(8))
  put(156, '0')
  put(257, 'ustar\0' + '00')
  const sum = header.reduce((total, byte) => total + byte, 0)
  put(148, `${octal(sum, 6)} `)
  return [header, body, new Uint8Array((512 - (body.length % 512)) % 512)]
}
