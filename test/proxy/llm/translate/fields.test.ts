import { readFileSync } from 'node:fs'
import t from 'tap'
import {
  CHAT,
  ITEMS,
  MESSAGES,
  MESSAGES_BLOCKS,
  MESSAGES_TOOLS,
  RESPONSES,
  TOOLS,
} from '../../../../proxy/llm/translate/request/fields.ts'
import type { MemberClasses } from '../../../../proxy/llm/translate/request/members.ts'

const sdk = (path: string, vendor = 'openai'): string =>
  readFileSync(
    new URL(import.meta.resolve(`${vendor}/resources/${path}`).replace(/\.m?js$/, '.d.ts')),
    'utf8',
  )

/** Lists the members of an interface, by the text of its types. */
function membersOf(text: string, name: string): readonly string[] {
  const [, indent = '', body = ''] =
    new RegExp(`^( *)(?:export )?interface ${name} (?:extends \\w+ )?\\{\\n([\\s\\S]*?)^\\1\\}`, 'm').exec(
      text,
    ) ?? []
  const members = [...body.matchAll(new RegExp(`^${indent}    (\\w+)\\??:`, 'gm'))].map(
    ([, member = '']) => member,
  )
  if (members.length === 0) throw new Error(`no interface ${name}`)
  return members
}

const chat = sdk('chat/completions/completions')
const responses = sdk('responses/responses')
const shared = sdk('shared')
const messages = sdk('beta/messages/messages', '@anthropic-ai/sdk')

const OBJECTS: readonly (readonly [name: string, text: string, classes: MemberClasses])[] = [
  ['ChatCompletionCreateParamsBase', chat, CHAT.request],
  ['ChatCompletionAssistantMessageParam', chat, CHAT.message],
  ['ChatCompletionUserMessageParam', chat, CHAT.message],
  ['ChatCompletionToolMessageParam', chat, CHAT.message],
  ['ChatCompletionSystemMessageParam', chat, CHAT.message],
  ['ChatCompletionMessageFunctionToolCall', chat, CHAT.call],
  ['ChatCompletionMessageCustomToolCall', chat, CHAT.call],
  ['ChatCompletionFunctionTool', chat, CHAT.tool],
  ['ChatCompletionCustomTool', chat, CHAT.tool],
  ['FunctionDefinition', shared, CHAT.function],
  ['ChatCompletionContentPartText', chat, CHAT.text],
  ['ChatCompletionContentPartImage', chat, CHAT.image],
  ['ChatCompletionContentPartRefusal', chat, CHAT.refusal],
  ['ChatCompletionStreamOptions', chat, CHAT.streamOptions],
  ['ResponseCreateParamsBase', responses, RESPONSES.request],
  ['EasyInputMessage', responses, RESPONSES.message],
  ['ResponseOutputMessage', responses, RESPONSES.message],
  ['ResponseInputText', responses, RESPONSES.text],
  ['ResponseOutputText', responses, RESPONSES.text],
  ['ResponseInputImage', responses, RESPONSES.image],
  ['ResponseInputFile', responses, RESPONSES.file],
  ['ResponseFunctionToolCall', responses, RESPONSES.call],
  ['ResponseCustomToolCall', responses, RESPONSES.call],
  ['FunctionCallOutput', responses, RESPONSES.output],
  ['ResponseCustomToolCallOutput', responses, RESPONSES.output],
  ['ResponseReasoningItem', responses, RESPONSES.reasoning],
  ['FunctionTool', responses, RESPONSES.function],
  ['CustomTool', responses, RESPONSES.custom],
  ['NamespaceTool', responses, RESPONSES.namespace],
  ['Reasoning', shared, RESPONSES.effort],
  ['ResponseTextConfig', responses, RESPONSES.textConfig],
  ['ResponseFormatTextJSONSchemaConfig', responses, RESPONSES.form],
  ['MessageCreateParamsBase', messages, MESSAGES.request],
  ['BetaOutputConfig', messages, MESSAGES.output],
  ['BetaUserMessageParam', messages, MESSAGES.message],
  ['BetaAssistantMessageParam', messages, MESSAGES.message],
  ['BetaSystemMessageParam', messages, MESSAGES.systemMessage],
  ['BetaSystemMessageOutputConfig', messages, MESSAGES.systemOutput],
  ['BetaRequestToolAdditionBlock', messages, MESSAGES.toolChange],
  ['BetaRequestToolRemovalBlock', messages, MESSAGES.toolChange],
  ['BetaTextBlockParam', messages, MESSAGES.text],
  ['BetaImageBlockParam', messages, MESSAGES.image],
  ['BetaRequestDocumentBlock', messages, MESSAGES.document],
  ['BetaSearchResultBlockParam', messages, MESSAGES.searchResult],
  ['BetaToolReferenceBlockParam', messages, MESSAGES.toolReference],
  ['BetaToolUseBlockParam', messages, MESSAGES.call],
  ['BetaToolResultBlockParam', messages, MESSAGES.result],
  ['BetaTool', messages, MESSAGES.tool],
  ['BetaThinkingConfigEnabled', messages, MESSAGES.thinking],
  ['BetaThinkingConfigAdaptive', messages, MESSAGES.thinking],
]

await t.test('§ each member that the SDKs can send has a class', async (t) => {
  for (const [name, text, classes] of OBJECTS)
    t.same(
      membersOf(text, name).filter((member) => !Object.hasOwn(classes, member)),
      [],
      name,
    )
})

/** Lists the words for the members of a union, by their `type`. */
function kindsOf(text: string, union: string): readonly string[] {
  const [, names = ''] = new RegExp(`^export type ${union} = (.*);$`, 'm').exec(text) ?? []
  return names.split(' | ').flatMap((name) => {
    const plain = name.replace(/^.*\./, '')
    const [, body = ''] =
      new RegExp(`^ *(?:export )?interface ${plain} \\{\n([\\s\\S]*?)^ *\\}$`, 'm').exec(text) ?? []
    const [, words = ''] = /^ +type\??: ((?:'[\w-]+'(?: \| )?)+)(?:null)?;$/m.exec(body) ?? []
    if (words === '') throw new Error(`no type in ${name}`)
    return words.replaceAll("'", '').split(' | ').filter(Boolean)
  })
}

const READ_ITEMS = [
  'message',
  'function_call',
  'function_call_output',
  'custom_tool_call',
  'custom_tool_call_output',
  'reasoning',
]

const READ_BLOCKS = [
  ...['text', 'image', 'document', 'search_result', 'thinking', 'redacted_thinking', 'tool_use'],
  ...['tool_result', 'tool_addition', 'tool_removal'],
]

await t.test('§ each kind of tool and of item that the SDKs can send has a class', async (t) => {
  const unknown = (union: string, classes: MemberClasses, read: readonly string[], of = responses) =>
    kindsOf(of, union)
      .map((kind) => kind.replace(/_\d{8}$/, ''))
      .filter((kind) => !Object.hasOwn(classes, kind) && !read.includes(kind))
  t.same(unknown('ResponseInputItem', ITEMS, READ_ITEMS), [], 'items')
  t.same(unknown('Tool', TOOLS, ['function', 'custom', 'namespace']), [], 'tools')
  t.same(unknown('BetaContentBlockParam', MESSAGES_BLOCKS, READ_BLOCKS, messages), [], 'blocks')
  t.same(unknown('BetaToolUnion', MESSAGES_TOOLS, ['custom'], messages), [], 'tools of Messages')
})
