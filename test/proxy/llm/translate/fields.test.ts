import t from 'tap'
import { CHAT } from '../../../../proxy/llm/translate/chat/fields.ts'
import { MESSAGES, MESSAGES_BLOCKS, MESSAGES_TOOLS } from '../../../../proxy/llm/translate/messages/fields.ts'
import type { MemberClasses } from '../../../../proxy/llm/translate/request/members.ts'
import { ITEMS, RESPONSES, TOOLS } from '../../../../proxy/llm/translate/responses/fields.ts'
import { kindsOf, membersOf, sdkTypes } from '../../../support/llm/sdk-types.ts'

const chat = sdkTypes('openai/resources/chat/completions/completions')
const responses = sdkTypes('openai/resources/responses/responses')
const shared = sdkTypes('openai/resources/shared')
const messages = sdkTypes('@anthropic-ai/sdk/resources/beta/messages/messages')

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
  ['AdditionalTools', responses, RESPONSES.addedTools],
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

const READ_ITEMS = [
  'message',
  'function_call',
  'function_call_output',
  'custom_tool_call',
  'custom_tool_call_output',
  'reasoning',
  'additional_tools',
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
