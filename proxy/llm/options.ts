import { z } from 'zod'
import { HOP_BY_HOP } from '../egress/hop-by-hop.ts'
import { type EgressProxy, parseProxyUrl, proxyVariable } from '../egress/proxy-tunnel.ts'
import { credentialOptions } from './credentials/options.ts'
import { DIALECT_NAMES, DIALECTS, WIRES } from './dialects/registry.ts'
import { READ_MEMBERS } from './dialects/routing-members.ts'
import { defaultAuth, defaultSpeaks, SERVER_NAMES } from './servers.ts'
import { LOSS_NAMES, type LossName } from './translate/losses.ts'
import {
  LATER_SYSTEM_WAYS,
  MAX_TOKENS_MEMBERS,
  REASONING_MEMBERS,
  THINKING_WAYS,
} from './translate/model/target.ts'
import { DROPPABLE } from './translate/request/extras.ts'
import { PASSED_HEADER, PASSED_QUERY, type PassedKind, passingObjection } from './upstream/passed-names.ts'

/** Headers of one connection, or of the framing of one message: an operator's file must not set them. */
const FRAMING_HEADERS: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'accept-encoding',
  'content-encoding',
  'content-length',
  'expect',
  'host',
])

const headerName = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/, 'must be an HTTP header name')
  .refine((name) => !FRAMING_HEADERS.has(name.toLowerCase()), 'belongs to the connection and cannot be set')

const headerValue = z
  .string()
  .max(8192)
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'must not hold control characters')

const model = z
  .string()
  .min(1)
  .max(256)
  .regex(/^\P{Cc}+$/u, 'must not hold control characters')

const milliseconds = (fallback: number, meaning: string) =>
  z
    .number()
    .int()
    .min(1)
    .max(3_600_000)
    .default(fallback)
    .describe(`${meaning} Milliseconds. Default ${fallback}.`)

/**
 * The patience of the vendors' SDKs: before the head of an answer, and after it, before the first event. ms.
 */
const MAX_SILENCE_MS = 600_000

/** A key is sent as a header value: one that a header cannot hold is refused at boot. */
const apiKey = z
  .string()
  .max(4096)
  .regex(/^[\x21-\x7e]*$/, 'must be printable ASCII without spaces')

const baseUrl = z
  .string()
  .refine((text) => isBaseUrl(text), 'must be an http or https URL without credentials, query or fragment')
  .describe(
    'Where the provider answers, up to and including its version segment, e.g. https://api.openai.com/v1. ' +
      'http:// is accepted, because the operator chose this address; it carries the key and the prompts in clear, ' +
      'so use it only for a provider on this machine or on a network that you trust.',
  )
  .transform(normalBaseUrl)

const proxySetting = z
  .string()
  .refine(
    (text) => text === 'env' || text === 'none' || parseProxyUrl(text) !== null,
    'must be env, none, or the http or https URL of a proxy, without a path',
  )
  .default('none')
  .describe(
    'How the provider is reached: none, directly, whatever the environment says; env, by the proxy that HTTPS_PROXY ' +
      'or ALL_PROXY names (HTTP_PROXY for http://), unless NO_PROXY exempts it; or by the proxy of this URL, whose ' +
      'user and password are a secret. Default none.',
  )

/** Writes a base URL as others are joined to it: without a slash at its end, and its version once. */
function normalBaseUrl(text: string): string {
  const { origin, pathname } = new URL(text)
  return (
    origin +
    pathname
      .replaceAll(/\/{2,}/g, '/')
      .replace(/\/$/, '')
      .replace(/(\/v\d+)\1$/, '$1')
  )
}

function isBaseUrl(text: string): boolean {
  const url = URL.parse(text)
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) return false
  // `search` and `hash` are empty for a bare `?` or `#` too, hence the text itself is asked.
  return !url.username && !url.password && !/[?#]/.test(text)
}

const memberName = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}|\*)?$/, 'must be the name of a member')
  .refine((name) => !READ_MEMBERS.includes(name), 'is what a call is routed by')

/** The names that one list may have: each is compared for each header of a call that nothing else passes. */
const MAX_PASSED = 50

const passed = (kind: PassedKind, description: string) =>
  z
    .array(
      z
        .string()
        .regex(kind === 'pass_query' ? PASSED_QUERY : PASSED_HEADER, FORM[kind])
        .superRefine((name, context) => {
          const message = passingObjection(kind, name)
          if (message !== null) context.addIssue({ code: 'custom', message })
        }),
    )
    .max(MAX_PASSED)
    .superRefine((names, context) => {
      const folded = names.map((name) => (kind === 'pass_query' ? name : name.toLowerCase()))
      for (const [index, name] of folded.entries()) {
        if (folded.indexOf(name) < index)
          context.addIssue({ code: 'custom', path: [index], message: 'stands there twice' })
      }
    })
    .default([])
    .describe(`${description} Never one of the gateway's own, a credential, or one of the connection.`)

const HEADER_FORM =
  'must be the name of an HTTP header, or the first four or more characters of names and a *'
const FORM: Readonly<Record<PassedKind, string>> = {
  pass_headers: HEADER_FORM,
  pass_answer_headers: HEADER_FORM,
  pass_query: 'must be the name of a parameter, as a URL has it',
}

const losses = z.union([z.literal('all'), z.literal('none'), z.array(z.enum(LOSS_NAMES))])
const droppedParameters = z.array(z.enum(DROPPABLE))

const RETRIED = 'must be connect, reset, 408, 409, 429 or a status from 500 to 599'
const RETRIED_STATUSES: ReadonlySet<number> = new Set([408, 409, 429])

const retryRule = z
  .strictObject({
    attempts: z
      .number()
      .int()
      .min(2)
      .max(5)
      .default(2)
      .describe('The most requests to it for one call, the first one included. 2 to 5. Default 2.'),
    on: z
      .array(
        z
          .union([z.enum(['connect', 'reset']), z.number().int().min(400).max(599)], { error: RETRIED })
          .refine((one) => typeof one === 'string' || one >= 500 || RETRIED_STATUSES.has(one), RETRIED),
      )
      .min(1)
      .max(20)
      .default(['connect', 429, 500, 502, 503, 529])
      .describe(
        'What is tried again: connect (no connection), reset (it broke before the answer), and statuses. ' +
          'A request that timed out never is. Default connect, 429, 500, 502, 503, 529.',
      ),
    backoff_ms: z
      .number()
      .int()
      .min(1)
      .max(60_000)
      .default(250)
      .describe('The wait before it is asked again, doubled each time. Milliseconds. Default 250.'),
    most_ms: z
      .number()
      .int()
      .min(1)
      .max(120_000)
      .default(5_000)
      .describe(
        'The longest wait. If retry-after is longer, the next provider is asked at once. Milliseconds. Default 5000.',
      ),
  })
  .refine(({ backoff_ms: first, most_ms: most }) => first <= most, {
    path: ['backoff_ms'],
    message: 'must not be more than most_ms',
  })

const seconds = (fallback: number, meaning: string) =>
  z.number().int().min(1).max(3_600).default(fallback).describe(`${meaning} Seconds. Default ${fallback}.`)

const breakerRule = z
  .strictObject({
    failures: z
      .number()
      .int()
      .min(1)
      .max(1_000)
      .default(5)
      .describe('The failures in a row that open it. Default 5.'),
    rate: z
      .number()
      .refine((rate) => rate > 0 && rate <= 1, 'must be more than 0 and at most 1')
      .default(0.5)
      .describe('The share of failed requests that opens it, above 0 and at most 1. Default 0.5.'),
    of: z
      .number()
      .int()
      .min(1)
      .max(100_000)
      .default(20)
      .describe('The fewest requests in window_s of which a share is taken. Default 20.'),
    window_s: seconds(30, 'The time over which requests are counted.'),
    open_s: seconds(10, 'The time for which a provider that fails is left alone.'),
    most_s: seconds(120, 'The longest time for which it is, as each try that fails doubles it.'),
  })
  .refine(({ open_s: first, most_s: most }) => first <= most, {
    path: ['open_s'],
    message: 'must not be more than most_s',
  })

const aliasedModel = z.strictObject({
  model,
  lossy: losses.optional(),
  drop: droppedParameters.optional(),
})

const provider = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'must be 1 to 32 of a-z, 0-9, _ and -, not starting with _ or -')
      .describe('What the provider is called in logs, in the ledger and in a provider/model prefix.'),
    dialect: z.enum(DIALECT_NAMES).describe('Whose key, headers and list of models the provider has.'),
    speaks: z
      .array(z.enum(WIRES))
      .min(1)
      .refine((wires) => new Set(wires).size === wires.length, 'names one twice')
      .optional()
      .describe(
        'The APIs that the provider answers: chat (Chat Completions), responses (OpenAI Responses), messages ' +
          '(Anthropic Messages). Default: chat and responses for openai, messages for anthropic, or as `server` says.',
      ),
    server: z
      .enum(SERVER_NAMES)
      .optional()
      .describe(
        'Which server it is that speaks the API of OpenAI: how it takes its key, and which APIs it answers ' +
          '(docs/providers.md#servers). Default openai.',
      ),
    api: z
      .enum(['native', 'vertex'])
      .default('native')
      .describe(
        'vertex: Claude at Google Cloud. The model stands in the URL, and base_url ends with /publishers/anthropic/models. Default native.',
      ),
    base_url: baseUrl,
    proxy: proxySetting,
    api_key: apiKey
      .default('')
      .describe('The key sent to the provider. Empty: calls are answered 503 provider_not_configured.'),
    credentials: credentialOptions
      .optional()
      .describe('Where a key comes from that expires, or that others write, in place of api_key.'),
    models: z
      .array(model)
      .max(1000)
      .default([])
      .describe('Model names that this provider serves. * stands for any characters.'),
    auth: z
      .enum(['api_key', 'bearer', 'passthrough'])
      .optional()
      .describe(
        "How the key is sent: x-api-key, Authorization: Bearer, or not at all and the caller's own vendor key is " +
          `passed on. Default: ${DIALECTS.map(({ name, key }) => `${key.auth} for ${name}`).join(', ')}.`,
      ),
    headers: z
      .record(headerName, headerValue)
      .default({})
      .describe("Further headers of every request to this provider. They win over the caller's."),
    pass_headers: passed(
      'pass_headers',
      'Headers of callers that go to this provider, in addition to those that always do ' +
        '(docs/protocol.md#credentials). * at the end stands for any characters.',
    ),
    pass_query: passed('pass_query', "Parameters of callers' URLs that go to this provider likewise."),
    pass_answer_headers: passed(
      'pass_answer_headers',
      'Headers of this provider that go to callers, in addition to those that always do.',
    ),
    aliases: z
      .record(model, z.union([model, aliasedModel]))
      .default({})
      .describe(
        "Names of this organisation's own for models of this provider: a model, or model, lossy and drop of its own.",
      ),
    refuse_members: z
      .array(memberName)
      .max(200)
      .default([])
      .describe(
        'Further members of a body that callers may not send to this provider, in addition to those by which known ' +
          'products choose another model, place or key (docs/protocol.md#refused-members). * at the end stands ' +
          'for any characters, a dot for one level down.',
      ),
    allow_members: z
      .array(memberName)
      .max(200)
      .default([])
      .describe('Members that callers may send to this provider nevertheless, e.g. provider of OpenRouter.'),
    state: z
      .enum(['refuse', 'own', 'allow'])
      .optional()
      .describe(
        'Whether a body may name what the provider keeps (docs/protocol.md#state). own: by an id that an answer to the ' +
          'same principal has stated, or one of `shared_ids`. refuse: never. allow: by any id. Default own; allow with ' +
          "auth: passthrough, where what is kept is the caller's own.",
      ),
    shared_ids: z
      .array(
        z
          .string()
          .min(1)
          .max(256)
          .regex(/^[\x21-\x7e]+$/, 'must be an id: printable ASCII without spaces')
          .refine((id) => !/^\*+$/.test(id), 'is every id: say state: allow instead'),
      )
      .max(1000)
      .default([])
      .describe(
        'Ids that every principal may name with state: own, such as those of prompts, files and vector stores that ' +
          'an operator has stored. * stands for any characters.',
      ),
    lossy: losses
      .default('none')
      .describe(
        'What may be left out of a call that is translated for this provider (docs/translation.md#losses): ' +
          'all, none, or names. Default none: such a call is answered 400 translation_lossy.',
      ),
    drop: droppedParameters
      .default([])
      .describe('Parameters that its models refuse: left out of translated calls, and named in the row.'),
    max_output_tokens: z
      .number()
      .int()
      .min(1)
      .max(1_000_000)
      .default(32_000)
      .describe(
        'The most tokens of an answer, told where a translated call states none and the provider demands it.',
      ),
    thinking: z
      .enum(THINKING_WAYS)
      .default('adaptive')
      .describe(
        'How the models are told of effort by the Messages API: adaptive, budget (older ones), or none.',
      ),
    show_reasoning: z
      .boolean()
      .default(false)
      .describe("Whether a translated call asks for the model's reasoning as text, and shows it."),
    quirks: z
      .strictObject({
        max_tokens: z.enum(MAX_TOKENS_MEMBERS).optional(),
        later_system: z.enum(LATER_SYSTEM_WAYS).optional(),
        reasoning: z.enum(REASONING_MEMBERS).optional(),
        replay_reasoning: z.boolean().optional(),
        usage_in_stream: z.boolean().optional(),
        top_k: z.boolean().optional(),
        stop_word: z.boolean().optional(),
        named_choice: z.boolean().optional(),
      })
      .default({})
      .describe(
        'The ways in which this server differs from others of its API, for translated calls ' +
          '(docs/translation.md#quirks). Default: those of its server.',
      ),
    cache: z
      .enum(['auto', 'off'])
      .default('auto')
      .describe(
        'Whether a translated call asks the Messages API to keep its beginning, which then costs less, and tells Responses which calls are of one session.',
      ),
    answered_by: z
      .record(model, z.array(model).max(100))
      .default({})
      .describe(
        'Other names by which this provider answers for a model of its own: a deployment of Azure, a ' +
          'group of a router. An answer by any other model is shown to operators. * stands for any characters.',
      ),
    weight: z
      .number()
      .max(1_000)
      .refine(
        (weight) => weight > 0,
        'must be more than 0; to ask a provider last, write it last, without one',
      )
      .optional()
      .describe(
        'Its share of the conversations among the providers of a model that have a weight. Absent: it is asked ' +
          'in the order of the file.',
      ),
    retry: retryRule
      .optional()
      .describe(
        'When the same provider is asked again, before the next one is (docs/providers.md#retry). Absent: never.',
      ),
    breaker: z
      .union([z.literal('off'), breakerRule], { error: 'must be off, or an object such as {failures: 5}' })
      .prefault({})
      .describe(
        'When a provider that fails is left alone for a while (docs/providers.md#breaker), or off. Default: ' +
          '5 failures in a row, or half of at least 20 requests in 30 seconds.',
      ),
    prices_as: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'must be the name of a vendor, as the table of prices has it')
      .optional()
      .describe(
        'The vendor whose prices the table has for the models of this provider (docs/costs.md#vendors). Default: its name.',
      ),
    connect_timeout_ms: milliseconds(5_000, 'How long connecting to the provider may take.'),
    first_byte_timeout_ms: milliseconds(
      MAX_SILENCE_MS,
      'How long the provider may take to begin its answer: 504 provider_timeout after that.',
    ),
    idle_timeout_ms: milliseconds(
      MAX_SILENCE_MS,
      'How long the provider may be silent between two pieces of its answer, events that only say that it lives included.',
    ),
  })
  .superRefine(({ dialect, server, api, speaks, auth, api_key: key, credentials }, context) => {
    const refuse = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message })
    if (server !== undefined && dialect !== 'openai')
      refuse('server', 'is for dialect: openai alone; leave it out')
    if (api === 'vertex' && dialect !== 'anthropic') refuse('api', 'vertex is for dialect: anthropic alone')
    if (api === 'vertex' && speaks?.some((wire) => wire !== 'messages'))
      refuse('speaks', 'is messages alone with api: vertex')
    if (credentials === undefined) return
    if (key !== '') refuse('credentials', 'stand next to api_key; leave one of them out')
    if (auth === 'passthrough')
      refuse('credentials', 'are never sent with auth: passthrough; leave one of them out')
  })
  .superRefine(({ state = 'own', shared_ids: shared }, context) => {
    const message = `say nothing with state: ${state}; leave them out`
    if (state !== 'own' && shared.length > 0)
      context.addIssue({ code: 'custom', path: ['shared_ids'], message })
  })
  .transform(({ auth, speaks, state, ...rest }) => ({
    ...rest,
    auth: auth ?? defaultAuth(rest),
    speaks: speaks ?? defaultSpeaks(rest),
    state: state ?? (auth === 'passthrough' ? ('allow' as const) : ('own' as const)),
  }))

/** The options of the `llm` plugin file. Does NOT check that a base URL answers, or takes a key. */
export const llmOptions = z
  .strictObject({
    default_provider: z
      .string()
      .optional()
      .describe('The provider for models that no pattern matches. Absent: such a model is answered 404.'),
    translate: z
      .enum(['on', 'off'])
      .default('on')
      .describe(
        'Whether a call goes to a provider that speaks another API than the caller, in that one ' +
          '(docs/translation.md). off: it is answered 400 dialect_translation_unavailable.',
      ),
    providers: z.array(provider).max(100).default([]),
  })
  .superRefine(({ default_provider, providers }, context) => {
    const names = new Set<string>()
    for (const [index, { name }] of providers.entries()) {
      if (names.has(name)) {
        context.addIssue({ code: 'custom', path: ['providers', index, 'name'], message: 'is used twice' })
      }
      names.add(name)
    }
    if (default_provider !== undefined && !names.has(default_provider)) {
      context.addIssue({
        code: 'custom',
        path: ['default_provider'],
        message: 'names no provider of this file',
      })
    }
  })

type ParsedLlmOptions = z.output<typeof llmOptions>

export interface LlmProvider extends z.output<typeof provider> {
  /** The environment variable that the file takes the key from; absent if it names none. */
  readonly keyVariable?: string
  /** The proxy that it is reached by; absent: none. */
  readonly tunnel?: EgressProxy
  /** The variable of the environment that takes part in that, or would if the file said so. */
  readonly proxyVariable?: string
}

type AliasedModel = LlmProvider['aliases'][string]

/** Returns the model that an alias stands for. */
export const modelOfAlias = (alias: AliasedModel): string => (typeof alias === 'string' ? alias : alias.model)

/** Returns what counts for translated calls that name this alias, which may be none, of a provider. */
export function translatedBy(
  { aliases, lossy, drop }: Pick<LlmProvider, 'aliases' | 'lossy' | 'drop'>,
  alias: string | null,
): { readonly accepted: readonly LossName[]; readonly drop: LlmProvider['drop'] } {
  const named = alias !== null && Object.hasOwn(aliases, alias) ? aliases[alias] : undefined
  const own = typeof named === 'object' ? named : null
  const losses = own?.lossy ?? lossy
  return {
    accepted: losses === 'all' ? LOSS_NAMES : losses === 'none' ? [] : losses,
    drop: own?.drop ?? drop,
  }
}

export interface LlmOptions extends Omit<ParsedLlmOptions, 'providers'> {
  readonly providers: readonly LlmProvider[]
}

/** Tells which variable each key comes from. `written`: the scalar at a path, never expanded. */
export const withKeyVariables = (
  options: ParsedLlmOptions,
  written: (path: readonly PropertyKey[]) => string | undefined,
): LlmOptions => ({
  ...options,
  providers: options.providers.map((one, index) => {
    const [, name] = /\$\{env:(\w+)/.exec(written(['providers', index, 'api_key']) ?? '') ?? []
    return name === undefined ? one : { ...one, keyVariable: name }
  }),
})

/** Tells of each provider which proxy it is reached by. Throws one sentence if a variable names none. */
export const withProxies = (
  options: LlmOptions,
  env: Readonly<Record<string, string | undefined>>,
): LlmOptions => ({ ...options, providers: options.providers.map((one) => withProxy(one, env)) })

function withProxy(provider: LlmProvider, env: Readonly<Record<string, string | undefined>>): LlmProvider {
  const { proxy, base_url: base } = provider
  const variable = proxyVariable(new URL(base), env)
  const named = variable && { proxyVariable: variable.name }
  if (proxy === 'none') return { ...provider, ...named }
  const tunnel = parseProxyUrl(proxy === 'env' ? (variable?.value ?? '') : proxy)
  if (tunnel) return { ...provider, tunnel, ...(proxy === 'env' && named) }
  if (!variable) return provider
  throw new Error(
    `${variable.name} must be the http or https URL of a proxy, for the provider ${provider.name}`,
  )
}
