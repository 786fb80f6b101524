import t from 'tap'
import type { ApiWire } from '../../../../proxy/llm/dialects/registry.ts'
import { ITEM_CONTENT, STATE_NAMES } from '../../../../proxy/llm/state/names.ts'
import { CHAT } from '../../../../proxy/llm/translate/chat/fields.ts'
import { MESSAGES, MESSAGES_BLOCKS } from '../../../../proxy/llm/translate/messages/fields.ts'
import { ITEMS, RESPONSES } from '../../../../proxy/llm/translate/responses/fields.ts'
import { kindsOf, sdkTypes } from '../../../support/llm/sdk-types.ts'

/** The types of each wire's SDK. */
const TEXTS: Readonly<Record<ApiWire, readonly string[]>> = {
  chat: ['openai/resources/chat/completions/completions'],
  responses: ['openai/resources/responses/responses'],
  messages: [
    '@anthropic-ai/sdk/resources/messages/messages',
    '@anthropic-ai/sdk/resources/beta/messages/messages',
  ],
}

/** Members with the name of an id that name nothing which a provider keeps of another call, and why. */
const NAME_NOTHING: Readonly<Record<string, string>> = {
  id: 'in items and holders alone: an id of a call, or of an answer',
  approval_request_id: 'an item of the same conversation',
  call_id: 'an item of the same request',
  caller_id: 'an item of the same request',
  connector_id: 'a public name, with a token of the caller’s',
  document_ids: 'the input of a tool, which the model writes',
  download_id: 'what a browser of the caller’s has',
  item_id: 'of an event',
  stream_id: 'of an event',
  tab_id: 'what a browser of the caller’s has',
  tool_call_id: 'an item of the same request',
  tool_id: 'an item of the same request',
  tool_use_id: 'an item of the same request',
  user_id: 'the caller’s own word',
  user_profile_id: 'who is asked for, as `user` says it',
  workspace_id: 'whom the bill goes to: nothing that is kept is read',
}

for (const wire of ['chat', 'responses', 'messages'] as const) {
  await t.test(`§ each id that the SDK of ${wire} can send is looked for, or names nothing`, (t) => {
    const { ids, outer } = STATE_NAMES[wire]
    const texts = TEXTS[wire].map(sdkTypes)
    const names = new Set(
      texts.flatMap((text) => [...text.matchAll(/^ +(\w*_ids?|id)\??: /gm)].map(([, name = '']) => name)),
    )
    const known = [...ids, ...outer, ...Object.keys(NAME_NOTHING)]
    t.same(
      [...names].filter((name) => !known.includes(name)),
      [],
    )
    t.ok(names.size > 2)
    t.end()
  })
}

await t.test('§ each member that holds an id as a text or an object is a holder', (t) => {
  const [responses = '', chat = ''] = [...TEXTS.responses, ...TEXTS.chat].map(sdkTypes)
  t.match(responses, /conversation\?: string \| ResponseConversationParam/)
  t.match(responses, /container: string \| CodeInterpreter\.CodeInterpreterToolAuto/)
  t.match(chat, /voice: string \| [^;]*ChatCompletionAudioParam\.ID/)
  t.match(
    sdkTypes('@anthropic-ai/sdk/resources/messages/messages'),
    /MessageCreateParamsContainer = ContainerParams \| string/,
  )
  t.end()
})

await t.test('§ each kind of item that the SDK can send says where its content stands', (t) => {
  const kinds = kindsOf(sdkTypes('openai/resources/responses/responses'), 'ResponseInputItem')
  t.same(
    kinds.filter((kind) => !Object.hasOwn(ITEM_CONTENT, kind)),
    [],
  )
  t.ok(kinds.length > 20)
  t.end()
})

/** The members that the translation calls state at a provider, and that are no ids. */
const NO_IDS = ['background', 'compaction', 'compaction_trigger', 'fallback_credit_token', 'thread']

await t.test('what is state at a provider to the translation is so to calls that pass', (t) => {
  const classes = [CHAT, RESPONSES, MESSAGES].flatMap((objects) => Object.values(objects))
  const items = [ITEMS, MESSAGES_BLOCKS]
  const named = [...classes, ...items].flatMap((members) =>
    Object.entries(members).flatMap(([name, kind]) =>
      JSON.stringify(kind) === '{"never":"provider_state"}' ? [name] : [],
    ),
  )
  const known = Object.values(STATE_NAMES).flatMap(({ ids, outer, holders }) => [
    ...ids,
    ...outer,
    ...holders,
  ])
  // A block that holds a file_id, and an item that holds an id.
  const holding = ['container_upload', 'item_reference']
  t.same(
    [...new Set(named)].filter((name) => ![...known, ...holding, ...NO_IDS].includes(name)),
    [],
  )
  t.end()
})
