import { OPERATIONS } from '../../admin/http/operations.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { pathOf } from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'

export const toolForms = (dashboard: DashboardContext) => {
  const to = ({ params, form }: FormSubmission): string =>
    form.get('from') === 'grid' ? gridOf(form) : pathOf('tools', params.resource ?? '')
  const { mcpResources, mcpBindings } = OPERATIONS
  const switched = (enabled: boolean) =>
    formHandler(dashboard, mcpResources.update, {
      given: ({ params, form }) => ({
        params: { resource_id: params.resource ?? '' },
        body: { enabled },
        ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
      }),
      to,
      notice: enabled ? 'enabled' : 'switched_off',
    })
  return {
    register: formHandler(dashboard, mcpResources.create, {
      given: ({ form }) => ({
        body: {
          name: form.get('name') ?? '',
          endpoint_url: form.get('endpoint_url') ?? '',
          required_capability: form.get('required_capability') || null,
        },
      }),
      to: (_facts, made) => (made === null ? '/proxy/tools' : pathOf('tools', made.resource_id)),
      notice: 'registered',
    }),
    enable: switched(true),
    disable: switched(false),
    refresh: formHandler(dashboard, mcpResources.refresh, {
      given: ({ params }) => ({ params: { resource_id: params.resource ?? '' } }),
      to,
      notice: 'refreshed',
    }),
    approve: formHandler(dashboard, mcpResources.approveTool, {
      given: ({ params, form }) => ({
        params: { resource_id: params.resource ?? '', tool: params.tool ?? '' },
        // Only the shown definition: one that came meanwhile was read by nobody.
        body: { digest: form.get('digest') ?? '' },
        ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
      }),
      to,
      notice: 'approved',
    }),
    approveIntroduction: formHandler(dashboard, mcpResources.approveIntroduction, {
      given: ({ params, form }) => ({
        params: { resource_id: params.resource ?? '' },
        body: { digest: form.get('digest') ?? '' },
        ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
      }),
      to,
      notice: 'server_approved',
    }),
    bind: formHandler(dashboard, mcpBindings.create, {
      given: ({ params, form }) => ({
        body: { agent_id: form.get('agent_id') ?? '', resource_id: params.resource ?? '' },
      }),
      to,
      notice: 'bound',
    }),
    revoke: rehearsedFormHandler(dashboard, mcpBindings.revoke, {
      title: () => 'Calls need this binding',
      label: 'Unbind',
      given: ({ params }) => ({ params: { binding_id: params.binding_id ?? '' } }),
      to,
      notice: 'revoked',
    }),
  }
}

function gridOf(form: FormSubmission['form']): string {
  const kept = ['q', 'cursor'].filter((name) => form.get(name)).map((name) => [name, form.get(name) ?? ''])
  return kept.length === 0
    ? '/proxy/tools'
    : `/proxy/tools?${new URLSearchParams(Object.fromEntries(kept)).toString()}`
}
