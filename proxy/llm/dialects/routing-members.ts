/** The members of the body of an LLM call that are read here: another spelling of one is refused. */
export const READ_MEMBERS: readonly string[] = ['model', 'stream']

/**
 * The outermost members that name what a provider keeps, or hold what does: another spelling of one is refused too, as
 * is one that stands twice.
 */
export const STATE_MEMBERS: readonly string[] = [
  'container',
  'conversation',
  'input',
  'previous_response_id',
  'prompt',
  'request_id',
  'thread',
]

/**
 * The members of a body by which a caller would choose, in addition to `model`, what runs and for whom:
 * another model, place, credentials or price. Those of every product that is known to act on a body of either
 * vendor's API; neither vendor's own API has any of them. Members that such a product only notes, counts by,
 * or samples with are not here. A star at the end stands for any letters; a dot is one level down. Compared
 * without case, underscores and hyphens.
 */
export const ROUTING_MEMBERS: readonly string[] = [
  // LiteLLM: another model, or another deployment of it.
  'fallback*',
  'default_fallbacks',
  'context_window_fallbacks',
  'context_window_fallback_dict',
  'content_policy_fallbacks',
  'max_fallbacks',
  'fastest_response',
  'model_list',
  'model_info',
  'model_id',
  'model_group',
  'model_name',
  'base_model',
  'deployment_id',
  'specific_deployment',
  'engine',
  'user_config',
  'router_settings_override',
  'routing_strategy',
  'allowed_model_region',
  'region_name',
  'prompt_id',
  'prompt_label',
  'prompt_version',
  'tags',
  'metadata.tags',
  'litellm_*',
  // LiteLLM: a failure at will, after which its own fallbacks run.
  'timeout',
  'force_timeout',
  'stream_timeout',
  'request_timeout',
  'num_retries',
  'max_retries',
  'mock_*',
  // LiteLLM: another place, or other credentials; and whatever stands in these, the model too, goes on from
  // there.
  'api_base',
  'api_key',
  'api_type',
  'api_version',
  'base_url',
  'custom_llm_provider',
  'azure',
  'auto_router_*',
  'ssl_verify',
  'organization',
  'aws_*',
  'azure_*',
  'client_secret',
  'oci_*',
  'sagemaker_*',
  'vertex_*',
  'watsonx_*',
  'use_litellm_proxy',
  'use_in_pass_through',
  'extra_body',
  'extra_headers',
  'extra_query',
  'default_headers',
  'headers',
  'provider_specific_header',
  'proxy_server_request',
  'secret_fields',
  // LiteLLM: its cost, its checks, and who is told.
  'input_cost_per_*',
  'output_cost_per_*',
  'no-log',
  'disable_global_guardrail*',
  'guardrail*',
  'metadata.guardrails',
  'metadata.disable_global_guardrails',
  'callbacks',
  'success_callback',
  'failure_callback',
  'langfuse_*',
  'langsmith_*',
  'gcs_*',
  // OpenRouter.
  'models',
  'route',
  'provider',
  'plugins',
  'preset',
  // Vercel AI Gateway, Portkey.
  'provider_options',
  'virtual_key',
  'override_params',
  'targets',
  'strategy',
  // Groq, Together, LM Studio: a further model.
  'compound_custom',
  'safety_model',
  'draft_model',
  // Azure OpenAI: its resource's own identity reads the sources that the caller names.
  'data_sources',
  'deployment',
  // vLLM, SGLang: other hosts, code and adapters by path.
  'kv_transfer_params',
  'bootstrap_host',
  'bootstrap_port',
  'bootstrap_room',
  'custom_logit_processor',
  'logits_processors',
  'lora_path',
  'lora_request',
]
