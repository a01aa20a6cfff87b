"""What a type checker sees of the names that are loaded when first used."""

from lococo.budgets import allocate as allocate
from lococo.cache import CacheReport as CacheReport
from lococo.cache import CompressedCache as CompressedCache
from lococo.cache import H2OCache as H2OCache
from lococo.cache import LoCoCoCache as LoCoCoCache
from lococo.cache import RandomEvictionCache as RandomEvictionCache
from lococo.cache import SnapKVCache as SnapKVCache
from lococo.cache import StreamingLLMCache as StreamingLLMCache
from lococo.chunked import chunked_nll as chunked_nll
from lococo.compressor import ConvCompressor as ConvCompressor
from lococo.compressor import LoCoCoConfig as LoCoCoConfig
from lococo.data import Question as Question
from lococo.data import associative_recall as associative_recall
from lococo.data import load_questions as load_questions
from lococo.data import load_texts as load_texts
from lococo.evaluate import Accuracy as Accuracy
from lococo.evaluate import Comparison as Comparison
from lococo.evaluate import Perplexity as Perplexity
from lococo.evaluate import compare_caches as compare_caches
from lococo.evaluate import multiple_choice as multiple_choice
from lococo.evaluate import needle_recall as needle_recall
from lococo.evaluate import perplexity as perplexity
from lococo.evaluate import qa as qa
from lococo.heads import LoCoCoCompressor as LoCoCoCompressor
from lococo.host import ModelShape as ModelShape
from lococo.named import make_cache as make_cache
from lococo.train import Calibration as Calibration
from lococo.train import calibrate as calibrate
from lococo.tune import Tuned as Tuned
from lococo.tune import interpolate_positions as interpolate_positions
from lococo.tune import load_tuned as load_tuned
from lococo.tune import tune_long_context as tune_long_context
from lococo.watching import observe as observe

__all__: list[str]
