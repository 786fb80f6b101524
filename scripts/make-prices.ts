import { readFile, writeFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { type PricedModel, type PriceTable, priceTable } from '../plugins/prices/options.ts'

export const TABLE_FILE = new URL('../plugins/prices/table.json', import.meta.url)

/** Installed for development alone, and loaded by this program alone. */
const PACKAGE = '@pydantic/genai-prices'

/** The vendors of the table, by the names that `prices_as` says. */
const VENDORS = [
  ...['openai', 'anthropic', 'google', 'azure', 'aws', 'mistral', 'deepseek', 'x-ai', 'groq', 'cohere'],
  ...[
    'perplexity',
    'moonshotai',
    'cerebras',
    'together',
    'fireworks',
    'minimax',
    'voyageai',
    'zai',
    'zhipuai',
  ],
  ...['novita', 'cloudflare', 'ovhcloud', 'openrouter'],
]

type Pattern =
  | { readonly equals: string }
  | { readonly starts_with: string }
  | { readonly ends_with: string }
  | { readonly contains: string }
  | { readonly regex: string }
  | { readonly or: readonly Pattern[] }
  | { readonly and: readonly Pattern[] }

const pattern: z.ZodType<Pattern> = z.lazy(() =>
  z.union([
    z.strictObject({ equals: z.string() }),
    z.strictObject({ starts_with: z.string() }),
    z.strictObject({ ends_with: z.string() }),
    z.strictObject({ contains: z.string() }),
    z.strictObject({ regex: z.string() }),
    z.strictObject({ or: z.array(pattern) }),
    z.strictObject({ and: z.array(pattern) }),
  ]),
)

const amount = z.union([
  z.number(),
  z.object({ base: z.number(), tiers: z.array(z.object({ start: z.number(), price: z.number() })) }),
])
const amounts = z.record(z.string(), amount)
type Amounts = z.output<typeof amounts>

const constraint = z.union([
  z.object({ type: z.literal('start_date'), start_date: z.string() }),
  z.object({ type: z.literal('time_of_date'), start_time: z.string(), end_time: z.string() }),
])

const listedModel = z.object({
  id: z.string(),
  match: pattern,
  context_window: z.number().nullish(),
  prices: z.union([z.array(z.object({ constraint: constraint.optional(), prices: amounts })), amounts]),
})
type ListedVendorModel = z.output<typeof listedModel>

const source = z.object({
  findProvider: z.custom<(options: { providerId: string }) => unknown>(
    (value) => typeof value === 'function',
  ),
})

/** The members of a price, and their names in the source. USD for a million tokens. */
const TOKEN_NAMES = {
  input: ['input_mtok', 'input_audio_mtok', 'input_image_mtok'],
  output: ['output_mtok', 'output_image_mtok', 'output_audio_mtok'],
  cached: ['cache_read_mtok', 'cache_image_read_mtok', 'cache_audio_read_mtok'],
  cache_write: ['cache_write_mtok'],
  cache_write_1h: ['cache_write_1h_mtok'],
  input_audio: ['input_audio_mtok'],
  input_image: ['input_image_mtok'],
  output_audio: ['output_audio_mtok'],
  output_image: ['output_image_mtok'],
} as const satisfies Partial<Record<keyof PricedModel, readonly string[]>>

/** An anthropic model's priority tier is paid in advance; its batches cost half. */
const FACTORS_OF: Readonly<Record<string, PricedModel['factors']>> = {
  anthropic: { service_tier: { batch: 0.5, priority: 1 } },
}

/** Makes the patterns of a model; null if none says the same. A date in a name becomes `*`. */
export function globsOf(match: Pattern): readonly string[] | null {
  if ('equals' in match) return [match.equals]
  if ('starts_with' in match) return [`${match.starts_with}*`]
  if ('ends_with' in match) return [`*${match.ends_with}`]
  if ('contains' in match) return [`*${match.contains}*`]
  if ('regex' in match) return globOfRegex(match.regex)
  if ('and' in match) return globOfAll(match.and)
  const all = match.or.map(globsOf)
  return all.every((one) => one !== null) ? all.flat() : null
}

function globOfRegex(regex: string): readonly string[] | null {
  const glob = `${regex.startsWith('^') ? '' : '*'}${regex}${regex.endsWith('$') ? '' : '*'}`
    .replace(/^(\*?)\^/, '$1')
    .replace(/\$$/, '')
    .replaceAll(/\\d(?:\{\d+\}|\+)?|\[0-9\](?:\{\d+\}|\+)?/g, '*')
    .replaceAll(/\\([.[\]/-])/g, '$1')
    .replaceAll(/\*+/g, '*')
  return /[\\()|+?{}^$]/.test(glob) ? null : [glob]
}

/** Tells an exception, which no glob says: what is excepted has an entry of its own, and a longer pattern. */
const isException = (one: Pattern): boolean => 'regex' in one && one.regex.startsWith('^(?!')

/** Makes one pattern of a beginning, an end and parts between. Two parts may stand in either order. */
function globOfAll(given: readonly Pattern[]): readonly string[] | null {
  const all = given.filter((one) => !isException(one))
  const [start = '', ...starts] = all.flatMap((one) => ('starts_with' in one ? [one.starts_with] : []))
  const [end = '', ...ends] = all.flatMap((one) => ('ends_with' in one ? [one.ends_with] : []))
  const parts = all.flatMap((one) => ('contains' in one ? [one.contains] : []))
  const count = (start === '' ? 0 : 1) + (end === '' ? 0 : 1) + parts.length
  if (starts.length + ends.length > 0 || count !== all.length || parts.length > 2) return null
  const orders = parts.length === 2 ? [parts, parts.toReversed()] : [parts]
  return orders.map((order) => [start, ...order, end].join('*'))
}

/** The prices of a model today; those of the hours of a day at the dearest. */
function pricesToday(prices: ListedVendorModel['prices'], today: string): Amounts {
  if (!Array.isArray(prices)) return prices
  const ofHours = prices.filter(({ constraint: one }) => one?.type === 'time_of_date')
  const base = prices.findLast(
    ({ constraint: one }) => !one || (one.type === 'start_date' && one.start_date <= today),
  )
  return [base, ...ofHours].reduce<Amounts>((all, one) => dearer(all, one?.prices ?? {}), {})
}

function dearer(one: Amounts, other: Amounts): Amounts {
  const all = { ...one }
  for (const [name, value] of Object.entries(other)) {
    const known = all[name]
    if (known === undefined || baseOf(known) < baseOf(value)) all[name] = value
  }
  return all
}

const baseOf = (value: z.output<typeof amount>): number => (typeof value === 'number' ? value : value.base)

const rounded = (usd: number): number => Number(usd.toFixed(6))

/** The price of tokens beyond a start; undefined: there is none. */
function tokenPrices(prices: Amounts, start: number): Record<string, number> {
  const at = (name: string): number | undefined => {
    const value = prices[name]
    if (value === undefined || typeof value === 'number') return value
    return value.tiers.findLast((tier) => tier.start <= start)?.price ?? value.base
  }
  const found = Object.entries(TOKEN_NAMES).flatMap(([member, names]) => {
    const stated = names.map(at).filter((one) => one !== undefined)
    // The dearest of what is cached: rows do not say of which kind it was.
    const value = member === 'cached' && stated.length > 0 ? Math.max(...stated) : stated[0]
    return value === undefined ? [] : [[member, rounded(value)] as const]
  })
  const all: Record<string, number> = Object.fromEntries(found)
  const reasoning = at('output_reasoning_mtok') ?? 0
  const { input = 0, output = 0 } = all
  const whole: Record<string, number> = { ...all, input, output: Math.max(output, rounded(reasoning)) }
  // What costs the same as all the rest need not be said.
  return Object.fromEntries(
    Object.entries(whole).filter(
      ([name, value]) => name === 'input' || name === 'output' || value !== whole[OTHER[name] ?? ''],
    ),
  )
}

const OTHER: Readonly<Record<string, string>> = {
  ...{ cached: 'input', cache_write: 'input', cache_write_1h: 'cache_write' },
  ...{ input_audio: 'input', input_image: 'input', output_audio: 'output', output_image: 'output' },
}

/** A window that a tier begins above is of calls without a header that widens it: it bounds nothing. */
const windowOf = (known: number, overs: readonly number[]) =>
  known > 0 && overs.every((over) => over < known) ? { window: known } : {}

/** Makes the price of a model; null if it is not sold by tokens. */
function pricedModel(
  vendor: string,
  model: ListedVendorModel,
  today: string,
): Omit<PricedModel, 'match'> | null {
  const prices = pricesToday(model.prices, today)
  const known = model.context_window ?? 0
  if (Object.keys(prices).length === 0 && model.id.endsWith(':free'))
    return { free: true, ...windowOf(known, []) }
  const names = Object.values(TOKEN_NAMES).flat()
  if (!names.some((name) => prices[name] !== undefined)) return null
  const starts = Object.values(prices).flatMap((one) => (typeof one === 'number' ? [] : one.tiers))
  const overs = [...new Set(starts.map(({ start }) => start))].toSorted((a, b) => a - b)
  const each = (name: string): number | undefined =>
    prices[name] === undefined ? undefined : rounded(baseOf(prices[name]) / 1000)
  const [call, search, files] = ['requests_kcount', 'web_searches_kcount', 'storage_searches_kcount'].map(
    each,
  )
  const { input = 0, output = 0, ...others } = tokenPrices(prices, 0)
  return {
    ...{ input, output, ...others },
    ...(overs.length > 0 && {
      above: overs.map((over) => {
        const { input: read = 0, output: written = 0, ...rest } = tokenPrices(prices, over)
        return { input_over: over, input: read, output: written, ...rest }
      }),
    }),
    ...(call !== undefined && { call }),
    ...(search !== undefined && { search }),
    ...(files !== undefined && { uses: { file_search: files } }),
    ...(FACTORS_OF[vendor] && { factors: FACTORS_OF[vendor] }),
    ...windowOf(known, overs),
  }
}

/** Characters of a pattern that are no `*`: the longest is the most particular. */
const literalLength = (glob: string): number =>
  (glob.includes('*') ? 0 : 10_000) + glob.replaceAll('*', '').length

/** Makes the models of a vendor, the most particular first. `left`: gets a line for each that is left out. */
export function vendorModels(
  vendor: string,
  models: readonly ListedVendorModel[],
  today: string,
  left: string[],
): readonly PricedModel[] {
  const rows = models.flatMap((model) => {
    const [globs, price] = [globsOf(model.match), pricedModel(vendor, model, today)]
    if (globs && price) return globs.map((glob) => ({ glob, price }))
    left.push(`${vendor}/${model.id}: ${price ? 'its names are no patterns' : 'not sold by tokens'}`)
    return []
  })
  const sorted = rows.toSorted((one, other) => literalLength(other.glob) - literalLength(one.glob))
  const made: { match: string[]; price: Omit<PricedModel, 'match'> }[] = []
  const exact = (glob: string): boolean => !glob.includes('*')
  for (const { glob, price } of sorted) {
    const match = `${vendor}/${glob}`
    // Of names without a star each is its own: those of one price stand together.
    const same = made.find(
      (one) => exact(glob) && one.match.every(exact) && isDeepStrictEqual(one.price, price),
    )
    const last = made.at(-1)
    if (same) same.match.push(match)
    else if (last && !exact(glob) && isDeepStrictEqual(last.price, price)) last.match.push(match)
    else made.push({ match: [match], price })
  }
  return made.map(({ match, price }) => ({ match: match.length === 1 ? (match[0] ?? '') : match, ...price }))
}

/** Writes a table: a line for each model. */
export const tableText = ({ source: from, models }: PriceTable): string =>
  `{\n"source": ${JSON.stringify(from)},\n"models": [\n${models.map((model) => JSON.stringify(model)).join(',\n')}\n]}\n`

/** Says what is another price than before, by pattern. */
export function changedPrices(before: PriceTable, now: PriceTable): readonly string[] {
  const pricesIn = ({ models }: PriceTable) =>
    new Map(
      models.flatMap(({ match, ...price }) =>
        [match].flat().map((one) => [one, JSON.stringify(price)] as const),
      ),
    )
  const [old, made] = [pricesIn(before), pricesIn(now)]
  return [...new Set([...old.keys(), ...made.keys()])].toSorted().flatMap((match) => {
    const [was, is] = [old.get(match), made.get(match)]
    if (was === is) return []
    return [`${match}: ${was ?? 'not there'} → ${is ?? 'not there'}`]
  })
}

async function madeTable(today: string, left: string[]): Promise<PriceTable> {
  const loaded: unknown = await import(PACKAGE)
  const { findProvider } = source.parse(loaded)
  const manifest: unknown = JSON.parse(
    await readFile(new URL(`../node_modules/${PACKAGE}/package.json`, import.meta.url), 'utf8'),
  )
  const { version } = z.object({ version: z.string() }).parse(manifest)
  const vendor = z.object({ models: z.array(listedModel) })
  const models = VENDORS.flatMap((name) =>
    vendorModels(name, vendor.parse(findProvider({ providerId: name })).models, today, left),
  )
  return priceTable.parse({ source: `${PACKAGE} ${version}, prices of ${today}`, models })
}

if (import.meta.main) {
  const left: string[] = []
  const made = await madeTable(new Date().toISOString().slice(0, 10), left)
  const text = await readFile(TABLE_FILE, 'utf8').catch(() => '{"models":[]}')
  const changes = changedPrices(priceTable.parse(JSON.parse(text)), made)
  for (const line of left) process.stdout.write(`left out: ${line}\n`)
  for (const line of changes) process.stdout.write(`${line}\n`)
  process.stdout.write(`${made.models.length} models, ${changes.length} changes\n`)
  await writeFile(TABLE_FILE, tableText(made))
}
