import { readFileSync } from 'node:fs'
import t from 'tap'
import { CHAT, ITEMS, RESPONSES, TOOLS } from '../../../../proxy/llm/translate/request/fields.ts'
import type { MemberClasses } from '../../../../proxy/llm/translate/request/members.ts'

const sdk = (path: string): string =>
  readFileSync(new URL(import.meta.resolve(`openai/resources/${path}`).replace(/\.m?js$/, '.d.ts')), 'utf8')

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

await t.test('§ each kind of tool and of item that the SDK can send has a class', async (t) => {
  const unknown = (union: string, classes: MemberClasses, read: readonly string[]) =>
    kindsOf(responses, union).filter((kind) => !Object.hasOwn(classes, kind) && !read.includes(kind))
  t.same(unknown('ResponseInputItem', ITEMS, READ_ITEMS), [], 'items')
  t.same(unknown('Tool', TOOLS, ['function', 'custom', 'namespace']), [], 'tools')
})
