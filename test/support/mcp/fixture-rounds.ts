import { randomBytes } from 'node:crypto'
import {
  acceptedContent,
  type CallToolResult,
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  createRequestStateCodec,
  type InputRequests,
  type InputRequiredResult,
  inputRequired,
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { question, said } from './fixture-content.ts'

/** What a round leaves behind for the next one: it travels through the client, under a MAC. */
interface Left {
  readonly tool: string
  readonly round: number
}

const codec = createRequestStateCodec<Left>({ key: randomBytes(32) })

/** The server option that refuses a `requestState` that we did not make, before any tool sees it. */
export const requestState = {
  verify: (state: string, ctx: ServerContext) => codec.verify(state, ctx),
}

type Answer = CallToolResult | InputRequiredResult
type Work = (ctx: ServerContext) => Answer | Promise<Answer>

/**
 * The tools that answer with `input_required` until the client's retry brings what they asked for
 * (2026-07-28).
 */
export function addRounds(server: McpServer): void {
  const add = (name: string, description: string, work: Work): void => {
    server.registerTool(name, { description }, work)
  }
  add('test_input_required_result_elicitation', 'Asks the user for a name', askName)
  add('test_streaming_elicitation', 'Asks the user for a name', askName)
  add('test_input_required_result_sampling', 'Asks the model', once({ capital_question: capital }))
  add('test_missing_capability', 'Asks the model', once({ capital_question: capital }))
  add('test_input_required_result_list_roots', 'Asks for the roots', once({ client_roots: roots }))
  add('test_input_required_result_capabilities', 'Asks for what the client can give', askWhatIsOffered)
  for (const name of ['request_state', 'tampered_state']) {
    const tool = `test_input_required_result_${name}`
    add(tool, 'Asks, and must be given back what it sent along', withState(tool, { confirm }))
  }
  const tool = 'test_input_required_result_multiple_inputs'
  add(tool, 'Asks three things at once', withState(tool, { user_name, greeting, client_roots: roots }))
  add('test_input_required_result_multi_round', 'Asks one thing after the other', askTwice)
}

const user_name = question('What is your name?', 'name')
const confirm = question('Please confirm.', 'ok', 'boolean')
const roots = inputRequired.listRoots()
const capital = sample('What is the capital of France?')
const greeting = sample('Write a greeting.')

function sample(text: string): InputRequests[string] {
  return inputRequired.createMessage({
    messages: [{ role: 'user', content: { type: 'text', text } }],
    maxTokens: 100,
  })
}

const has = (ctx: ServerContext, inputRequests: InputRequests): boolean =>
  Object.keys(inputRequests).every((key) => ctx.mcpReq.inputResponses?.[key] !== undefined)

const askName: Work = (ctx) => {
  const answer = acceptedContent<{ name: string }>(ctx.mcpReq.inputResponses, 'user_name')
  return answer ? said(`Hello, ${answer.name}!`) : inputRequired({ inputRequests: { user_name } })
}

const once =
  (inputRequests: InputRequests): Work =>
  (ctx) =>
    has(ctx, inputRequests)
      ? said(JSON.stringify(ctx.mcpReq.inputResponses))
      : inputRequired({ inputRequests })

const withState =
  (tool: string, inputRequests: InputRequests): Work =>
  async (ctx) => {
    if (!has(ctx, inputRequests)) {
      return inputRequired({ inputRequests, requestState: await codec.mint({ tool, round: 1 }) })
    }
    if (ctx.mcpReq.requestState<Left>()?.tool !== tool) {
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'The state is missing, or of another tool.')
    }
    return said('state-ok')
  }

const askTwice: Work = async (ctx) => {
  const tool = 'multi_round'
  const round = ctx.mcpReq.requestState<Left>()?.round ?? 0
  if (round === 2 && has(ctx, { step2: confirm })) return said('Both steps are done.')
  const step2 = question('Step 2: what is your favourite colour?', 'color')
  if (round > 0 && has(ctx, { step1: confirm })) {
    return inputRequired({ inputRequests: { step2 }, requestState: await codec.mint({ tool, round: 2 }) })
  }
  const step1 = question('Step 1: what is your name?', 'name')
  return inputRequired({ inputRequests: { step1 }, requestState: await codec.mint({ tool, round: 1 }) })
}

const askWhatIsOffered: Work = (ctx) => {
  // The SDK's types name no member of the envelope; this is the one it has checked to be an object.
  const envelope = ctx.mcpReq.envelope as { [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } | undefined
  const offered = envelope?.[CLIENT_CAPABILITIES_META_KEY]
  const inputRequests: InputRequests = {
    ...(offered?.elicitation && { user_name }),
    ...(offered?.sampling && { greeting }),
    ...(offered?.roots && { client_roots: roots }),
  }
  const none = Object.keys(inputRequests).length === 0
  return none || has(ctx, inputRequests) ? said('Nothing more to ask.') : inputRequired({ inputRequests })
}
