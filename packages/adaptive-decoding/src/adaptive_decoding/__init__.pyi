"""What a type checker sees of the names that are loaded when first used."""

from adaptive_decoding.array import adaptive_filter as adaptive_filter
from adaptive_decoding.calibration import Calibration as Calibration
from adaptive_decoding.calibration import Recorded as Recorded
from adaptive_decoding.calibration import calibrate_epsilon as calibrate_epsilon
from adaptive_decoding.calibration import match_size as match_size
from adaptive_decoding.calibration import record_logits as record_logits
from adaptive_decoding.candidates import candidate_mask as candidate_mask
from adaptive_decoding.comparison import compare as compare
from adaptive_decoding.contrastive import contrastive_search as contrastive_search
from adaptive_decoding.data import Prompt as Prompt
from adaptive_decoding.data import Question as Question
from adaptive_decoding.data import load_prompts as load_prompts
from adaptive_decoding.data import load_questions as load_questions
from adaptive_decoding.decoders import Decoder as Decoder
from adaptive_decoding.decoders import make_decoder as make_decoder
from adaptive_decoding.distance import MauveScore as MauveScore
from adaptive_decoding.distance import mauve as mauve
from adaptive_decoding.generation import Continuation as Continuation
from adaptive_decoding.generation import continuations as continuations
from adaptive_decoding.increments import Increments as Increments
from adaptive_decoding.increments import confidence as confidence
from adaptive_decoding.increments import confidence_increments as confidence_increments
from adaptive_decoding.metrics import SentenceEncoder as SentenceEncoder
from adaptive_decoding.metrics import coherence as coherence
from adaptive_decoding.metrics import diversity as diversity
from adaptive_decoding.metrics import log_likelihood_coherence as log_likelihood_coherence
from adaptive_decoding.metrics import perplexity as perplexity
from adaptive_decoding.metrics import rep_n as rep_n
from adaptive_decoding.metrics import self_bleu as self_bleu
from adaptive_decoding.metrics import zipf as zipf
from adaptive_decoding.mirostat import MirostatLogitsProcessor as MirostatLogitsProcessor
from adaptive_decoding.processor import AdaptiveLogitsProcessor as AdaptiveLogitsProcessor
from adaptive_decoding.reasoning import Answered as Answered
from adaptive_decoding.reasoning import ReasoningReport as ReasoningReport
from adaptive_decoding.reasoning import evaluate_reasoning as evaluate_reasoning
from adaptive_decoding.reasoning import read_answer as read_answer
from adaptive_decoding.report import DecoderReport as DecoderReport
from adaptive_decoding.report import Estimate as Estimate
from adaptive_decoding.trace import DecodingTrace as DecodingTrace

__all__: list[str]
