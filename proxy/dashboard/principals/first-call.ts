import { callLines, callsOf } from '../activity/calls.ts'
import type { DashboardPage } from '../frame/page.ts'
import { html, pathOf } from '../frame/parts.ts'

/** GET /proxy/agents/{id}/first-call: whether an agent has called yet. A script asks again until it has. */
export const firstCallPage: DashboardPage = async (dashboard, facts) => {
  const { id = '' } = facts.params
  const { calls } = await callsOf(dashboard, facts, { principal: id, most: 1, noise: true })
  return {
    title: 'First call',
    section: '/proxy/agents',
    body:
      calls.length === 0
        ? html`<p id="first-call" role="status">Waiting for the first call… <a href="">Check again</a></p>`
        : html`<div id="first-call" data-arrived role="status"><p class="notice">The first call has arrived.</p>${callLines(calls, facts.at, html``)}<p><a href="${pathOf('agents', id)}">See the agent</a></p></div>`,
  }
}
