import { Refusal } from '../../../plugins/refusal.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { WhatIfVerdict } from '../../admin/principals/what-if.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  capabilityTokens,
  EMPTY_HTML,
  gateLine,
  type HtmlFragment,
  html,
  pathOf,
  problemList,
  reasonWords,
} from '../frame/parts.ts'
import { type CallerPlural, PRINCIPAL_PAGES, readPrincipalDetail } from './kinds.ts'

/** Asks for a model or a tool: the card of a principal's page, and the head of the answer's. */
export const whatIfCard = (path: string, model = '', tool = ''): HtmlFragment =>
  html`<section class="card" id="what-if"><h2>May it call this now?</h2>
<form method="get" action="${path}/what-if"><label>A model <input name="model" value="${model}" maxlength="256" autocomplete="off" placeholder="gpt-5"></label><button>Ask</button></form>
<form method="get" action="${path}/what-if"><label>A tool <input name="tool" value="${tool}" maxlength="256" autocomplete="off" placeholder="server.tool"></label><button>Ask</button></form>
<p class="faint">The gates judge it as they would a call. Nothing is sent or recorded.</p></section>`

/** GET /proxy/{kind}/{id}/what-if: a call that is not made, gate by gate. */
export const whatIfPage =
  (plural: CallerPlural): DashboardPage =>
  async (dashboard, facts) => {
    const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
    const asked = new URLSearchParams(facts.query)
    const [model, tool] = [asked.get('model')?.trim() ?? '', asked.get('tool')?.trim() ?? '']
    const path = pathOf(plural, one.id)
    const query = { ...(model && { model }), ...(tool && { tool }) }
    const name = one.value.display_name || one.value.name
    const answer = async (): Promise<HtmlFragment> => {
      try {
        const given = { params: { id: one.id }, query }
        const { whatIf } = PRINCIPAL_PAGES[plural].operations
        const { value } = await perform(whatIf, dashboard.context, given, facts)
        return verdictCard(value, name, model || tool)
      } catch (error) {
        if (!(error instanceof Refusal) || error.status >= 500) throw error
        return problemList(error)
      }
    }
    return {
      title: `What if ${name} called`,
      section: `/proxy/${plural}`,
      body: html`${model || tool ? await answer() : EMPTY_HTML}${whatIfCard(path, model, tool)}<p><a href="${path}">Back</a></p>`,
    }
  }

const NOTES = {
  pass: '',
  refuse: '',
  presumed: 'presumed: the caller has to bring a proof that holds',
  not_asked: 'not asked: a check of your own, which may count',
} as const

const verdictCard = (
  { allowed, refusal, gates, demanded, providers }: OperationResult<WhatIfVerdict>['value'],
  who: string,
  what: string,
): HtmlFragment =>
  html`<p class="${allowed ? 'notice' : 'problem'}" role="status"><b>${who}</b> ${allowed ? 'may call' : 'may not call'} <b>${what}</b> now${refusal === null ? '.' : html`: ${reasonWords(refusal.reason, demanded[0])}. ${refusal.message}`}</p>
<section class="card"><h2>The checks, in order</h2><ol class="gates">${gates.map(({ gate, verdict }) =>
    gateLine(
      gate,
      verdict !== 'refuse',
      gate === 'capability' && demanded.length > 0
        ? html`demands ${capabilityTokens(demanded)}`
        : NOTES[verdict],
    ),
  )}</ol>${allowed && providers.length > 0 && html`<p>It would be asked of ${providers.join(', then ')}.</p>`}</section>`
