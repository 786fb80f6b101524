import type { MinProof } from '../db/ledger/authority/rule.ts'
import type { PresentRules } from '../db/limits/present-rules.ts'
import { capabilityBeforeBody, capabilityGate, NO_TARGET, routeDemand } from '../plugins/capability.ts'
import { type DpopDependencies, dpop } from '../plugins/dpop/dpop.ts'
import { type ProofClaimDependencies, singleUse } from '../plugins/dpop/single-use.ts'
import type { AccessToken, DpopProof, Principal } from '../plugins/facts.ts'
import { type JsonBody, jsonBody } from '../plugins/json-body/json-body.ts'
import { callLimits, type LimitDependencies } from '../plugins/limits/limits.ts'
import type { CheckPlugin } from '../plugins/operator-files/module.ts'
import { shadowChecks } from '../plugins/operator-files/shadow.ts'
import {
  type AdministrationFacts,
  identifyOperator,
  type KnownOperator,
  localOperator,
  type OperatorDependencies,
  recheckOperator,
  requireSession,
} from '../plugins/operators/operator.ts'
import { operatorReader, proofReader } from '../plugins/operators/proof-reader.ts'
import { type BrowserSessions, sessionDoor } from '../plugins/operators/sessions.ts'
import { origin, pagesOf, withPlainLoopback } from '../plugins/origin/origin.ts'
import { bearerProof } from '../plugins/people/bearer.ts'
import type { PinnedCaller } from '../plugins/pin/pin.ts'
import { type Arrival, Pipeline, type Plugin } from '../plugins/plugin.ts'
import { Refusal } from '../plugins/refusal.ts'
import { metricsReader } from '../plugins/secrets/metrics-token.ts'
import { notStopped, rulesInForce } from '../plugins/stops/stop.ts'
import { changePipeline } from './admin/pipeline.ts'
import { tokenProof, tokenRequest } from './auth/token-request.ts'
import { endpointFor, wouldReach } from './llm/describe-providers.ts'
import type { DialectName, LlmEndpoint } from './llm/dialects/registry.ts'
import { limitedModels } from './llm/limits/limited.ts'
import { callPrices } from './llm/limits/priced.ts'
import { JUDGED_MEMBERS, type LlmTarget, llmCall, llmMembers } from './llm/routing.ts'
import type { StateMemory } from './llm/state/memory.ts'
import { WATCHED_NAMES } from './llm/state/names.ts'
import { providerState } from './llm/state/provider-state.ts'
import { mcpAccountForeseen } from './mcp/gate/account.ts'
import { approvalJudge } from './mcp/gate/approval.ts'
import { mcpAccount, mcpApproval, mcpApprovalForeseen, mcpState, mcpTool } from './mcp/gate/checks.ts'
import type { McpTarget } from './mcp/gate/demand-now.ts'
import {
  mcpResourceLookup,
  mcpResourcePath,
  type PathResourceAccess,
  type ResourcePath,
} from './mcp/gate/endpoint.ts'
import { limitedTool } from './mcp/gate/limited.ts'
import { mcpTarget, mcpTargetRequired } from './mcp/gate/target.ts'
import type { McpRuntime } from './mcp/mcp.ts'
import { type McpMessage, mcpMessage, mcpPeek, type PeekedCall } from './mcp/protocol/message.ts'
import {
  formBody,
  formToken,
  type SubmittedForm,
  sameSiteSession,
  secretInForm,
  visitor,
} from './operators/pages/form.ts'
import { readSessionRules, sessionRulesOf } from './operators/sessions/open.ts'
import type { Configuration } from './wiring/configuration.ts'

const MIB = 1024 * 1024
/**
 * The limit of the body of an LLM call: prompts carry pictures and long histories
 * (docs/protocol.md#llm-order). Bytes.
 */
const LLM_BODY_LIMIT = 32 * MIB
const BODY_LIMIT = MIB
/** The limit of a body with a code, from anybody: of the first start, or of an invitation. Bytes. */
const SETUP_BODY_LIMIT = 4096
/** The limit of the body that asks for a certificate: a request in PEM as JSON. Bytes. */
const CSR_BODY_LIMIT = 80 * 1024
/** The limit of the forms of signing in and out, from anybody. Bytes. */
const SIGN_IN_BODY_LIMIT = 4096
/** The limit of the forms of who is signed in: one holds a CA's certificates in PEM. Bytes. */
const FORM_LIMIT = 512 * 1024
/** The limit of an identity provider's logout. Bytes. */
const LOGOUT_BODY_LIMIT = 64 * 1024
/** The limit of an MCP message: the arguments of a tool may carry a file. Bytes. */
const MCP_BODY_LIMIT = 8 * MIB

export interface PipelineDependencies {
  readonly configuration: Configuration
  /** The configuration in force, which may be a later one: calls under way are asked again by it. */
  readonly inForce: () => Configuration
  /** Finds the principal of a certificate, by its digest or, if it was enrolled so, by its SPIFFE id. */
  readonly pin: Plugin<Arrival, PinnedCaller>
  /** The same, asked in the database each time: for facts that no record asserts. */
  readonly pinNow: Plugin<Arrival, PinnedCaller>
  /** Asks it once more, if a body has taken its time. */
  readonly again: Plugin<Arrival & PinnedCaller, { holder: Principal }>
  /** Made once: it remembers the keys that held. */
  readonly apiKey: Plugin<Arrival & { principal: Principal }, object>
  /** Finds operators. Outlives a configuration: a memory of failures, and sessions. */
  readonly operators: Omit<OperatorDependencies, 'pin' | 'proof' | 'page' | 'session'>
  /** The sessions of browsers. */
  readonly sessions: BrowserSessions
  /** The base URLs of administration, which may have a listener of its own. */
  readonly adminUrls: () => readonly string[]
  /** The same, and the further origins that browsers may have its pages from. */
  readonly adminPages: () => readonly string[]
  /** The questions at the listener for people, in the place of those about a certificate. */
  readonly people: PeopleQuestions
  /** `MCP_PROXY_METRICS_TOKEN`, or null. */
  readonly metricsToken: string | null
  /** Refuses at setup once a secret is stored. */
  readonly beforeFirstSecret: Plugin<Arrival, object>
  /** The sources of the checks of proofs and tokens; the mode comes from the configuration. */
  readonly constrained: Omit<DpopDependencies, 'mode' | 'noDowngrade' | 'inForce'>
  readonly claims: ProofClaimDependencies
  /** ms since the epoch. */
  readonly clock: () => number
  /** Made once: limits are of the database, and samples of the process. */
  readonly limits: Pick<LimitDependencies, 'samples' | 'full'>
  /** Made once: the limits and stops in the database. */
  readonly rules: Pick<PresentRules, 'now'>
  /** Made once: the ids that providers' answers have stated. */
  readonly states: Pick<StateMemory, 'known' | 'pausesMs'>
  /** Made once: sessions and open server requests outlive a configuration. */
  readonly mcp: Pick<
    McpRuntime,
    | 'registry'
    | 'sessions'
    | 'serverRequests'
    | 'farRequests'
    | 'states'
    | 'listedUris'
    | 'accounts'
    | 'findAccount'
  >
}

/** The questions of who calls by a token of a grant. */
interface PeopleQuestions extends Pick<PipelineDependencies, 'pin' | 'pinNow' | 'again'> {
  /** The one URL of the listener; none if it is closed. */
  readonly urls: () => readonly string[]
  readonly door: Omit<Parameters<typeof bearerProof>[0], 'llm'>
}

/** The demand on an operator: the capability for a change, and the action of its row. */
interface OperationGate {
  readonly action: string
  readonly demands: string
}

const METRICS: OperationGate = { action: 'admin.read', demands: 'admin.read' }

/** The facts of an MCP request whose message was read. */
type McpReadFacts = Arrival &
  JsonBody &
  PathResourceAccess &
  ResourcePath &
  PinnedCaller & {
    readonly proof: DpopProof | null
    readonly token: AccessToken | null
    readonly peeked: PeekedCall
    readonly message: McpMessage
  }

/**
 * Makes the pipelines of all kinds of endpoints, each with its plugins in order. The first refusal ends a
 * pipeline.
 */
export function pipelines(dependencies: PipelineDependencies) {
  const questions = callerQuestions(dependencies)
  const operators = operatorQuestions(dependencies, questions)
  return {
    /** Health and public keys. */
    anyone: ANYONE,
    llm: llmPipelines(dependencies, questions),
    mcp: mcpPipelines(dependencies, questions),
    auth: authPipelines(dependencies, questions),
    proofs: proofPipeline(dependencies, questions, operators),
    /** Administration: an operator over TLS, or a user whom the file mode of the control socket lets in. */
    admin: administration(dependencies, operators.known),
    control: {
      ...administration(dependencies, localOperator),
      proofs: ANYONE.pass(operatorReader(localOperator)).pass(singleUse(dependencies.claims)),
    },
    /** The questions of a call that was not made. */
    whatIf: whatIfPipelines(dependencies),
    /** A change that one of them asks for: rehearsal, expectations, the second operator. */
    change: changePipeline,
    /** The first operator secret, by the code on the terminal that started the service. */
    setup: ANYONE.pass(dependencies.beforeFirstSecret).pass(
      jsonBody({ limit: SETUP_BODY_LIMIT, empty: true }),
    ),
    signIn: signInPipelines(dependencies, questions),
    dashboard: dashboardPipelines(dependencies, questions, operators),
    /** The listener for people without a certificate, if it is open. */
    people: () => peoplePipelines(dependencies, questions),
  }
}

export type GatewayPipelines = ReturnType<typeof pipelines>

const ANYONE = Pipeline.start()

/** Makes the questions that several surfaces ask, each once: some remember what held. */
function callerQuestions({
  configuration,
  inForce,
  constrained,
  adminUrls,
  adminPages: pages,
  limits,
  rules: present,
}: PipelineDependencies) {
  const { dpopMode: mode, noDowngrade } = configuration
  const judged = { ...constrained, mode, noDowngrade, inForce }
  const adminPages = origin(pages)
  return {
    // Wherever a certificate acts: a browser shows it for any page (docs/threats.md#d1).
    ours: ANYONE.pass(origin(constrained.baseUrls)),
    proof: dpop(judged),
    rules: rulesInForce(present),
    /** The means of the last question of calls: prices are read for it once. */
    limited: { ...limits, ...callPrices(configuration) },
    adminPages,
    // Operators get tokens on a listener of administration as well.
    eitherPages: ANYONE.pass(origin(adminUrls)),
    eitherProof: dpop({ ...judged, baseUrls: adminUrls }),
  }
}

type CallerQuestions = ReturnType<typeof callerQuestions>

/** Makes the questions of who administers over TLS, and of whose browser asks for a page. */
function operatorQuestions(
  { configuration, inForce, operators, pinNow, sessions }: PipelineDependencies,
  { adminPages: page, eitherProof: proof }: CallerQuestions,
) {
  const terms = { rules: readSessionRules(configuration.operators), proof }
  const { changing, showing } = sessionDoor(sessions, page, terms, sessionRulesOf(inForce))
  return {
    known: identifyOperator({ ...operators, pin: pinNow, proof, page, session: changing }),
    browser: requireSession(sameSiteSession(showing)),
  }
}

type OperatorQuestions = ReturnType<typeof operatorQuestions>

/** The organisation's own checks in their order, and after them the shadows. */
function ownChecks({ checks }: Configuration): readonly CheckPlugin[] {
  const of = (isShadow: boolean) =>
    checks.filter(({ shadow: watches }) => watches === isShadow).map(({ check }) => check)
  const [judging, watching] = [of(false), of(true)]
  return watching.length === 0 ? judging : [...judging, shadowChecks(watching)]
}

/** Reads the body of an LLM call, and looks for names by which it may name what a provider keeps. */
const llmBody = ({ wire }: Pick<LlmEndpoint, 'wire'>) =>
  jsonBody({ limit: LLM_BODY_LIMIT, judged: JUDGED_MEMBERS, watched: wire && WATCHED_NAMES[wire] })

function llmPipelines(
  { configuration, pin, pinNow, again, apiKey, claims, states }: PipelineDependencies,
  { ours, proof, rules, limited }: CallerQuestions,
) {
  // Once for all endpoints: it keeps the limits of each principal.
  const withinLimits = callLimits(limited, limitedModels(configuration.llm))
  const gate = capabilityGate<LlmTarget>()
  const members = llmMembers(configuration.llm)
  const state = providerState(configuration.llm, states)
  const own = ownChecks(configuration)
  return {
    /**
     * The page, the demand, the certificate, the proof, the API key, the call and its capability (which is
     * asked first if the body is long); then the organisation's own checks, and last stops and limits, so that
     * rows say who was stopped, and what is refused anyway reserves nothing.
     */
    call: (endpoint: LlmEndpoint) => {
      const call = ours
        .pass(routeDemand('egress_llm_chat', 'llm.chat'))
        .pass(pin)
        .pass(proof)
        .pass(apiKey)
        .pass(capabilityBeforeBody)
        .pass(llmBody(endpoint))
        .pass(llmCall(endpoint))
        .pass(members)
        // If an operator's change overtakes the record, everything that rests on it is asked once more.
        .anew(pin, proof)
        // Once more: a body may take two minutes to come, and a revocation meanwhile must hold
        // (docs/threats.md#m-06). If it came at once, the record sees to that alone.
        .pass(again)
        .pass(gate)
        .pass(state)
      return own
        .reduce<typeof call>((pipeline, check) => pipeline.pass(check), call)
        .pass(rules)
        .pass(notStopped)
        .pass(withinLimits)
    },

    /** The lists of models and of a caller's own limits: not gated, but closed to anonymous callers. */
    models: ours.pass(pinNow).pass(proof).pass(apiKey).pass(singleUse(claims)),
  }
}

/** Makes the pipelines at the listener for people: those of calls differ in who calls alone. */
function peoplePipelines(dependencies: PipelineDependencies, questions: CallerQuestions) {
  const { people, constrained, configuration, inForce } = dependencies
  const { urls, door, ...caller } = people
  const llm = (): MinProof => {
    const { llm: least } = inForce().people
    return least === 'off' ? 'certificate' : least
  }
  const ours = ANYONE.pass(origin(urls))
  const proof = bearerProof({ ...door, llm })
  const asked = { ...questions, ours, proof }
  const of = {
    ...{ ...dependencies, ...caller, constrained: { ...constrained, baseUrls: urls } },
    // No other site's page calls here.
    configuration: { ...configuration, mcp: { ...configuration.mcp, allowed_origins: [] } },
  }
  return {
    anyone: ANYONE,
    /** A form of our own pages. */
    form: ours.pass(formBody(SIGN_IN_BODY_LIMIT)),
    llm: llmPipelines(of, asked),
    mcp: mcpPipelines(of, asked),
  }
}

/** MCP: only the message tells whether it is about the connection or asks for work. */
function mcpPipelines(dependencies: PipelineDependencies, { proof, rules, limited }: CallerQuestions) {
  const { configuration, constrained, pin, pinNow, again, apiKey, claims, mcp } = dependencies
  const ownPages = () => constrained.baseUrls().flatMap(withPlainLoopback)
  const pages = ANYONE.pass(origin(ownPages, configuration.mcp.allowed_origins))
  const door = mcpResourceLookup(mcp.registry)
  const resourcePath = mcpResourcePath(mcp.sessions)
  return {
    pages,
    listedPages: pagesOf(configuration.mcp.allowed_origins),
    read: pages
      .pass(pin)
      .pass(proof)
      .pass(apiKey)
      .pass(jsonBody({ limit: MCP_BODY_LIMIT, otherwise: 'mcp_message_invalid', lookedInto: ['params'] }))
      .pass(mcpPeek)
      .pass(mcpMessage)
      .pass(door)
      .pass(resourcePath),
    session: pages.pass(pinNow).pass(proof).pass(apiKey).pass(singleUse(claims)),
    handshake: Pipeline.start<McpReadFacts>().pass(again).pass(singleUse(claims)),
    work: mcpWork(
      dependencies,
      { rules, limited },
      Pipeline.start<McpReadFacts>().anew(pin, proof, door, resourcePath),
    ),
  }
}

/**
 * Makes the pipeline of MCP work (docs/protocol.md#mcp-order): the target, the capability, the approved
 * definition; then the organisation's own checks, stops and limits, and last the caller's own account and the
 * approval of a person: nobody is asked for one of a call that is refused anyway.
 */
function mcpWork(
  { configuration, inForce, again, mcp, claims, clock, adminUrls, people }: PipelineDependencies,
  { rules, limited }: Pick<CallerQuestions, 'rules' | 'limited'>,
  read: Pipeline<McpReadFacts, McpReadFacts>,
) {
  const { digest: configDigest } = configuration
  const approval = approvalJudge({
    ...{ ...claims, ...mcp, configDigest, clock },
    ...{ urls: adminUrls, peopleUrls: people.urls },
  })
  const call = read
    .pass(mcpTarget({ ...mcp, options: configuration.mcp, inForce }))
    .pass(mcpTargetRequired)
    .pass(again)
    .pass(capabilityGate<McpTarget>())
    .pass(mcpTool(mcp.registry))
    .pass(mcpState(mcp.states))
  return ownChecks(configuration)
    .reduce<typeof call>((pipeline, check) => pipeline.pass(check), call)
    .pass(rules)
    .pass(notStopped)
    .pass(callLimits(limited, limitedTool))
    .pass(mcpAccount(mcp.findAccount))
    .pass(mcpApproval(approval))
}

/**
 * Makes the questions of a call that nobody makes (docs/operating.md#what-if): the same plugins, in the same
 * order. A proof and an API key are presumed, which nobody has here; a module of the operator's own is not
 * asked, as it may count. Nothing is claimed, recorded or settled.
 */
function whatIfPipelines({ configuration, inForce, pinNow, again, mcp }: PipelineDependencies) {
  const { llm, dpopMode, checks } = configuration
  const own = checks
    .filter(({ shadow: watches }) => !watches)
    .map(({ check, isModule }): CheckPlugin => (isModule ? { name: check.name, admit: () => ({}) } : check))
  const withProof = ANYONE.pass(pinNow).pass(presumedProof(dpopMode))
  const tool = withProof
    .pass(jsonBody({ limit: MCP_BODY_LIMIT, otherwise: 'mcp_message_invalid', lookedInto: ['params'] }))
    .pass(mcpPeek)
    .pass(mcpMessage)
    .pass(mcpResourceLookup(mcp.registry))
    .pass(mcpResourcePath(mcp.sessions))
    .pass(mcpTarget({ ...mcp, options: configuration.mcp, inForce }))
    .pass(mcpTargetRequired)
    .pass(again)
    .pass(capabilityGate<McpTarget>())
    .pass(withoutArguments(mcpTool(mcp.registry)))
  const gate = capabilityGate<LlmTarget>()
  const model = (endpoint: LlmEndpoint) => {
    const call = ANYONE.pass(routeDemand('egress_llm_chat', 'llm.chat'))
      .pass(pinNow)
      .pass(presumedProof(dpopMode))
      .pass(llmBody(endpoint))
      .pass(llmCall(endpoint))
      .pass(llmMembers(llm))
      .pass(again)
      .pass(gate)
    return own.reduce<typeof call>((pipeline, check) => pipeline.pass(check), call).pass(wouldReach(llm))
  }
  const notAsked = checks.filter(({ isModule, shadow }) => isModule && !shadow).map(({ check }) => check.name)
  return {
    model: (name: string, dialect: DialectName | undefined) => {
      const endpoint = endpointFor(llm, name, dialect)
      return { path: endpoint.path, pipeline: model(endpoint), notAsked }
    },
    tool: {
      path: '/v1/mcp',
      pipeline: own
        .reduce<typeof tool>((pipeline, check) => pipeline.pass(check), tool)
        .pass(mcpAccountForeseen(mcp.accounts))
        .pass(mcpApprovalForeseen),
      notAsked,
    },
  }
}

/** Presumes the proof that a caller would send: by its registered key, or by any if it has none. */
const presumedProof = (mode: Configuration['dpopMode']): Plugin<PinnedCaller, PresumedProof> => ({
  name: 'dpop',
  admit: ({ principal: { dpopJkt } }) => ({
    token: null,
    proof:
      mode === 'off' || (mode === 'optional' && dpopJkt === null)
        ? null
        : { jkt: dpopJkt ?? '', replayKey: '', expiresAt: 0 },
  }),
})

interface PresumedProof {
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
}

/** Asks for a tool's approved definition; arguments, of which there are none here, are not judged. */
const withoutArguments = <Needs extends object, Gives extends object>({
  name,
  admit,
}: Plugin<Needs, Gives>): Plugin<Needs, object> => ({
  name,
  admit: async (facts) => {
    try {
      await admit(facts)
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== 'mcp_params_invalid') throw error
    }
    return {}
  },
})

/**
 * Signing in: the certificate authenticates the client (RFC 8705 §2), the proof names the key to bind a token
 * to. A principal renews its certificate if it could make a call with it.
 */
function authPipelines(
  { pinNow, again, apiKey, claims, constrained, adminUrls }: PipelineDependencies,
  { ours, eitherPages, eitherProof }: CallerQuestions,
) {
  return {
    anyone: ANYONE,
    login: ours.pass(pinNow),
    certificate: eitherPages
      .pass(pinNow)
      .pass(eitherProof)
      .pass(apiKey)
      .pass(jsonBody({ limit: CSR_BODY_LIMIT }))
      .pass(again)
      .pass(singleUse(claims)),
    token: eitherPages
      .pass(pinNow)
      .pass(tokenRequest)
      .pass(again)
      .pass(tokenProof(constrained.nonces, adminUrls)),
  }
}

/** Proofs of the ledger: any known principal, or an operator by one of its doors. */
const proofPipeline = (
  { pinNow: pin, apiKey, claims }: PipelineDependencies,
  { eitherPages, eitherProof: proof }: CallerQuestions,
  { known }: OperatorQuestions,
) => eitherPages.pass(proofReader(known, { pin, proof, apiKey })).pass(singleUse(claims))

/** Makes the pipelines of administration for those that `who` finds. */
function administration({ metricsToken, claims }: PipelineDependencies, who: Plugin<Arrival, KnownOperator>) {
  const gate = capabilityGate<null>()
  const body = jsonBody({ limit: BODY_LIMIT, empty: true })
  const asked = ({ action, demands }: OperationGate, whom = who) =>
    ANYONE.pass(routeDemand(action, demands)).pass(NO_TARGET).pass(whom).pass(gate)
  return {
    read: (operation: OperationGate): Pipeline<AdministrationFacts> =>
      asked(operation).pass(singleUse(claims)),
    /** Asked once more after the body: an operator who was deactivated while it came changes nothing. */
    write: (operation: OperationGate): Pipeline<AdministrationFacts & JsonBody> =>
      asked(operation).pass(body).pass(recheckOperator(who, gate)).pass(singleUse(claims, 'change')),
    metrics: asked(METRICS, metricsReader(who, metricsToken)).pass(singleUse(claims)),
  }
}

/** Signing in and out with a browser. */
function signInPipelines(
  { operators, pinNow, claims, sessions }: PipelineDependencies,
  { adminPages, eitherProof }: CallerQuestions,
) {
  const pages = ANYONE.pass(adminPages)
  const form = formBody(SIGN_IN_BODY_LIMIT)
  return {
    anyone: ANYONE,
    /** An operator's certificate, with the mode's other demands: a browser signs no proofs. */
    certificate: pages.pass(pinNow).pass(eitherProof).pass(form).pass(singleUse(claims)),
    secret: pages.pass(form).pass(secretInForm(operators.secret)),
    /**
     * Nobody is made to forget its session by a page of another site, whose form comes without a Strict
     * cookie.
     */
    signOut: pages.pass(form).pass(visitor(sessions)),
    logout: ANYONE.pass(formBody(LOGOUT_BODY_LIMIT)),
  }
}

/** The pages of the dashboard: those that a session opens, and the first page of all. */
function dashboardPipelines(
  { beforeFirstSecret, claims }: PipelineDependencies,
  { adminPages }: CallerQuestions,
  { browser }: OperatorQuestions,
) {
  const gate = capabilityGate<null>()
  const asked = (pages: Pipeline<Arrival>, { action, demands }: OperationGate) =>
    pages.pass(routeDemand(action, demands)).pass(NO_TARGET).pass(browser).pass(gate)
  return {
    anyone: ANYONE,
    /** While no secret is stored: by the code on the terminal. */
    setup: ANYONE.pass(beforeFirstSecret),
    setUp: ANYONE.pass(beforeFirstSecret).pass(adminPages).pass(formBody(SETUP_BODY_LIMIT)),
    /** Accepts an invitation, by its code. */
    accept: ANYONE.pass(adminPages).pass(formBody(SETUP_BODY_LIMIT)),
    /** A page demands what the API demands for the same data. */
    page: (operation: OperationGate): Pipeline<AdministrationFacts> =>
      asked(ANYONE, operation).pass(singleUse(claims)),
    /** A form of such a page, which comes with its session's token; asked once more after its body. */
    form: (operation: OperationGate): Pipeline<AdministrationFacts & SubmittedForm> =>
      asked(ANYONE.pass(adminPages), operation)
        .pass(formBody(FORM_LIMIT))
        .pass(formToken)
        .pass(recheckOperator(browser, gate))
        .pass(singleUse(claims)),
  }
}
